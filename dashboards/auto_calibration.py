"""Automatic calibration: one at a time, of Ready endpoints with idle workers.

A calibration applies to all endpoints with the same model, machine and arguments, so each such
combination is measured once. Failed attempts are repeated with growing delays, `ATTEMPTS` at most.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.db.models import F
from django.utils import timezone

from console.core.counters import increment
from dashboards import actions
from dashboards.calibration_guard import ReadLoad, read_load
from dashboards.calibration_switches import read_switches
from dashboards.costs.formulas.price_terms import parse_stored_needs
from dashboards.costs.prices.factors import by_settings
from dashboards.models import Calibration, ProofRun
from endpoints import selectors
from endpoints.choices import Phase
from endpoints.models import Endpoint
from endpoints.refusals import RefusalError

ATTEMPTS = 8
DELAYS = (timedelta(minutes=2), timedelta(minutes=15), timedelta(hours=2), timedelta(hours=6))
"""Delays after failed attempts; the last one applies to all further attempts."""
MAX_LOOKED = 5
"""Maximum number of endpoints whose load is read in one sweep."""


def sweep(load: ReadLoad = read_load) -> Calibration | None:
    """Queue the next automatic calibration, if an endpoint is due and its workers are idle."""
    actions.fail_abandoned_runs()
    if _is_any_running():
        return None
    due = list(find_due(timezone.now()))
    random.shuffle(due)  # a busy endpoint does not keep the others waiting
    for endpoint in due[:MAX_LOOKED]:
        state = load(endpoint)
        if state is None or state.in_flight:
            increment(
                "auto_calibrations",
                outcome="postponed",
                reason="load_unknown" if state is None else "traffic",
            )
            continue
        try:
            return actions.start_automatic_calibration(endpoint)
        except RefusalError:  # another process was first
            return None
    return None


def has_work() -> bool:
    """Return whether a run is under way, which may be abandoned, or a calibration is due."""
    return _is_any_running() or next(find_due(timezone.now()), None) is not None


def find_due(now: datetime) -> Iterator[Endpoint]:
    """Yield the endpoints whose settings have no calibration, in the order of their names."""
    switches = read_switches()
    if not switches.default and True not in switches.of.values():
        return
    measured = by_settings()
    ready = selectors.endpoints().filter(
        status__phase=Phase.READY,
        status__ready_replicas__gt=0,
        status__observed_generation=F("generation"),
        deleted_at=None,
    )
    # Whole rows only of endpoints without a calibration: mostly there are none.
    listed = (
        (pk, parse_stored_needs(spec).settings)
        for pk, spec in ready.values_list("pk", "spec")
        if switches.enabled(pk)
    )
    unmeasured = {pk: settings for pk, settings in listed if settings not in measured}
    if not unmeasured:
        return
    attempts = _list_attempts(unmeasured.values())
    for endpoint in ready.filter(pk__in=unmeasured):
        made = attempts.get(unmeasured[endpoint.pk], ())
        delay = DELAYS[min(len(made), len(DELAYS)) - 1]
        if not made or (len(made) < ATTEMPTS and now - made[-1] > delay):
            yield endpoint


def _list_attempts(settings: Iterable[str]) -> dict[str, list[datetime]]:
    rows = Calibration.objects.filter(automatic=True, measured_as__in=set(settings))
    attempts: dict[str, list[datetime]] = {}
    for name, created_at in rows.order_by("created_at").values_list("measured_as", "created_at"):
        attempts.setdefault(name, []).append(created_at)
    return attempts


def _is_any_running() -> bool:
    return any(model.list_live().exists() for model in (Calibration, ProofRun))
