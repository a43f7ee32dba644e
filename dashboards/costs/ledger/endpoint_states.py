"""Resources, team and tags of each endpoint as of a past hour.

Deleted endpoints are resolved from stored rows, and unknown if there are none. Two queries for all
endpoints, and one more for those changed since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from dashboards.costs.formulas.price_terms import Needs, parse_stored_needs
from dashboards.costs.models import CostDay
from endpoints import selectors

_REMEMBERED = timedelta(days=31)
_HELD = ("gpus", "cpus", "memory_bytes", "l1_bytes")
_APART = ("routers", "router_cpus", "router_memory_bytes")
"""Shown beside the worker cost; part of no sum."""


@dataclass(frozen=True, slots=True)
class EndpointState:
    """State of an endpoint at a cost pass. `team_id` None: no team. `since`: creation time, None
    for deleted endpoints.
    """

    needs: Needs
    team_id: int | None
    team: str
    since: datetime | None = None

    @property
    def key(self) -> str:
        """Return a key that changes with anything relevant to cost or reports."""
        needs = {name: value for name, value in asdict(self.needs).items() if name not in _APART}
        parts = [needs, self.team_id, self.team]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def held(self) -> dict[str, Any]:
        return {name: getattr(self.needs, name) for name in _HELD}


def states_at(end: datetime, names: Collection[str]) -> Mapping[str, EndpointState]:
    """Return states by name: endpoints created before `end`, and the deleted ones among `names`."""
    rows = list(selectors.endpoints().filter(created_at__lt=end))
    then = selectors.specs_before([row.pk for row in rows if row.changed_at >= end], end)
    states = {
        row.name: EndpointState(
            parse_stored_needs(then.get(row.pk, row.spec)),
            row.team_id,
            row.team.slug if row.team else "",
            row.created_at,
        )
        for row in rows
    }
    return states | _gone({name for name in names if name not in states}, end)


def stored_needs(row: CostDay) -> Needs:
    """Restore the needs from the row."""
    held = {name: row.held.get(name, 0) for name in _HELD}
    return Needs(
        model=row.model,
        machine=row.machine,
        tier=row.tier,
        simulated=row.simulated,
        tags=row.tags,
        settings=row.settings,
        **held,
    )


def _gone(names: Collection[str], end: datetime) -> dict[str, EndpointState]:
    gone = {name: EndpointState(Needs("", "", 0, 0.0, 0, 0), None, "") for name in names}
    days = CostDay.objects.filter(
        endpoint_name__in=names, day__lte=end.date(), day__gte=(end - _REMEMBERED).date()
    )
    for row in days.order_by("day", "pk"):
        gone[row.endpoint_name] = EndpointState(stored_needs(row), row.team_id, row.team)
    return gone
