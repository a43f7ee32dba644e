"""Query parameters and rows of the endpoint list.

The number of queries is constant. Unknown parameters are ignored, so that old bookmarks still work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.db.models.fields.json import KT

from endpoints import selectors
from endpoints.choices import Phase
from endpoints.models import Endpoint
from endpoints.spec.fields import STRATEGIES

PAGE_SIZE = 50
LONGEST = 200
NONE_VALUE = "-"
"""URL value for no team or no cluster."""

SEVERITY = (
    Phase.FAILED,
    Phase.UNAVAILABLE,
    Phase.DEGRADED,
    Phase.UPDATING,
    Phase.PROVISIONING,
    Phase.PENDING,
    Phase.DELETING,
    Phase.PAUSING,
    Phase.PAUSED,
    Phase.READY,
)
_SORTS: Mapping[str, tuple[str, ...]] = {
    "name": ("name",),
    "phase": ("severity", "name"),
    "workers": ("status__ready_replicas", "name"),
    "model": ("model_name", "name"),
    "created": ("created_at", "name"),
    "changed": ("changed_at", "name"),
}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Parsed query parameters; "" does not filter. A leading minus in `sort` reverses the order."""

    q: str = ""
    phase: str = ""
    strategy: str = ""
    cluster: str = ""
    team: str = ""
    model: str = ""
    sort: str = "name"

    @classmethod
    def read(cls, query: Mapping[str, Any]) -> ListQuery:
        def word(key: str) -> str:
            # PostgreSQL rejects NUL.
            return str(query.get(key, "")).strip()[:LONGEST]

        phase, strategy, sort = word("phase"), word("strategy"), word("sort")
        return cls(
            q=word("q"),
            phase=phase if phase in set(Phase) else "",
            strategy=strategy if strategy in STRATEGIES else "",
            cluster=word("cluster"),
            team=word("team"),
            model=word("model"),
            sort=sort if sort.removeprefix("-") in _SORTS else "name",
        )

    @property
    def narrowed(self) -> bool:
        return any((self.q, self.phase, self.strategy, self.cluster, self.team, self.model))


def rows(viewer: Any, wanted: ListQuery) -> QuerySet[Endpoint]:
    annotated = _annotated(selectors.endpoints(viewer))
    for condition in _conditions(wanted):
        annotated = annotated.filter(condition)
    return annotated.order_by(*_order(wanted.sort))


def choices(viewer: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the filter options of visible endpoints (clusters, teams, models) in one query.
    Filters with a single option are omitted.
    """
    annotated: Any = _annotated(
        selectors.endpoints(viewer)
    ).order_by()  # annotated with our own names
    values = annotated.values_list(
        "cluster_name", "team__slug", "team__name", "model_name"
    ).distinct()
    clusters, teams, models = set(), set(), set()
    for cluster, slug, team, model in values:
        clusters.add((cluster or NONE_VALUE, cluster or "this machine"))
        teams.add((slug or NONE_VALUE, team or "No team"))
        models.add((model, model))
    every = {"cluster": clusters, "team": teams, "model": models}
    return {
        kind: sorted(pairs, key=lambda pair: pair[1])
        for kind, pairs in every.items()
        if len(pairs) > 1
    }


def _annotated(found: QuerySet[Endpoint]) -> QuerySet[Endpoint]:
    ranks = [When(deleted_at__isnull=False, then=Value(SEVERITY.index(Phase.DELETING)))]
    ranks += [When(status__phase=phase, then=Value(index)) for index, phase in enumerate(SEVERITY)]
    return found.annotate(
        severity=Case(*ranks, default=Value(len(SEVERITY)), output_field=IntegerField()),
        model_name=KT("spec__model"),
        cluster_name=KT("spec__placement__cluster"),
    )


def _conditions(wanted: ListQuery) -> list[Q]:
    conditions = [
        Q(name__icontains=word) | Q(model_name__icontains=word) for word in wanted.q.split()
    ]
    if wanted.phase == Phase.DELETING:
        conditions.append(Q(deleted_at__isnull=False))
    elif wanted.phase:
        conditions.append(Q(status__phase=wanted.phase, deleted_at__isnull=True))
    if wanted.strategy:
        conditions.append(selectors.uses_strategy(wanted.strategy))
    if wanted.cluster == NONE_VALUE:
        conditions.append(Q(spec__placement__cluster="") | Q(spec__placement__cluster__isnull=True))
    elif wanted.cluster:
        conditions.append(Q(spec__placement__cluster=wanted.cluster))
    if wanted.team:
        conditions.append(Q(team=None) if wanted.team == NONE_VALUE else Q(team__slug=wanted.team))
    if wanted.model:
        conditions.append(Q(spec__model=wanted.model))
    return conditions


def _order(sort: str) -> list[str]:
    first, *rest = _SORTS[sort.removeprefix("-")]
    return [f"-{first}" if sort.startswith("-") else first, *rest]
