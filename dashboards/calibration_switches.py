"""Switches of the automatic calibration: the default, exceptions by endpoint, the settings card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.permissions import require
from console.audit.record import record
from console.core.errors import Problem, Refused
from console.web.shell.cards import Card, Fact
from dashboards.models import CalibrationSwitch
from endpoints import selectors

FIELD = "auto_calibration"


@dataclass(frozen=True, slots=True)
class Switches:
    """Switches of automatic calibration. `default` applies to endpoints without an own value in
    `of` (by endpoint id).
    """

    default: bool
    of: Mapping[Any, bool]

    def enabled(self, endpoint_id: Any) -> bool:
        return self.of.get(endpoint_id, self.default)


def read_switches() -> Switches:
    """Return all switches, with one query."""
    rows = CalibrationSwitch.objects.order_by("pk").values_list("endpoint_id", "enabled")
    switches: dict[Any, bool] = dict(rows)
    return Switches(switches.pop(None, settings.EMBERLINE.auto_calibration), switches)


def set_default(actor: Any, enabled: bool | None) -> bool:
    """Switch automatic calibration for all endpoints without an own value."""
    require(actor, "operator")
    if enabled is None:
        raise Refused(Problem(FIELD, None, "Required.", "Send true or false.", "required"))
    before = read_switches().default
    with transaction.atomic():
        _store(actor, None, enabled)
        changes = {FIELD: [before, enabled]}
        record(actor, "update", "settings/auto-calibration", changes)
    return enabled


def set_endpoint(actor: Any, name: str, enabled: bool | None) -> bool:
    """Switch it for one endpoint; None removes its own value. Return the effective value."""
    endpoint = selectors.get(name, viewer=actor)
    require(actor, "operator", of=endpoint)
    before = read_switches().of.get(endpoint.pk)
    with transaction.atomic():
        _store(actor, endpoint.pk, enabled)
        changes = {FIELD: [before, enabled]}
        record(actor, "update", f"endpoint/{name}", changes)
    return read_switches().enabled(endpoint.pk)


def _store(actor: Any, endpoint_id: Any, enabled: bool | None) -> None:
    rows = CalibrationSwitch.objects.filter(endpoint_id=endpoint_id)
    if enabled is None:
        rows.delete()
        return
    fields = {"enabled": enabled, "changed_at": timezone.now(), "changed_by": stored_actor(actor)}
    if not rows.update(**fields):
        CalibrationSwitch.objects.create(endpoint_id=endpoint_id, **fields)


def list_facts(_viewer: Any) -> Sequence[Fact]:
    switches = read_switches()
    own = sum(value != switches.default for value in switches.of.values())
    return (
        Fact("Automatic calibration", "on" if switches.default else "off"),
        Fact("Endpoints that differ", str(own)),
    )


CARD = Card(
    "calibration",
    "Calibration",
    "Prefill time per prompt token, the base of cache savings in USD.",
    35,
    list_facts,
    "dashboards:calibrations",
    "Calibration",
)
