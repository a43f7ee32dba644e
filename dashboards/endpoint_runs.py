"""Run queued cache proofs and calibrations and store their results, failures included."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.utils import timezone

from console.core.counters import increment
from dashboards import calibration_guard
from dashboards.calibration_guard import (
    CalibrationAbandonedError,
    CalibrationGuard,
    ReadLoad,
    read_load,
)
from dashboards.costs.formulas import calibration
from dashboards.models import Calibration, CalibrationEnd, ProofRun
from dashboards.proof import cache_proof
from dashboards.proof.cache_proof import REQUEST_S, LiveTools, ProofFacts, Shot, Tools
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.prompt.client import PromptAnswer
from endpoints.reconcile import events
from endpoints.runs import RunState

log = logging.getLogger(__name__)

SETTLE_S = 3.0
"""Pause before each request of a calibration: a worker writes a prompt to L1 and L2 after its
response, which would slow down the next request.
"""
_CRASHED = "The console failed; its log states the cause."
_FAILURES = (CalibrationEnd.NO_RESULT, CalibrationEnd.CRASHED)


def make_live_tools(endpoint: Endpoint, deadline_s: float = REQUEST_S) -> Tools:
    workers = {w.name: w.url for w in selectors.worker_facts(endpoint) if w.ready}
    key = selectors.console_key(endpoint)
    return LiveTools(selectors.ask_url(endpoint), key, endpoint.name, workers, deadline_s)


def read_proof_facts(endpoint: Endpoint) -> ProofFacts:
    spec = endpoint.parsed
    ready = [w for w in selectors.worker_facts(endpoint) if w.ready and not w.draining]
    return ProofFacts(
        workers=tuple(worker.name for worker in ready),
        l1=spec.cache.l1.enabled,
        l2=spec.cache.l2.enabled,
        strategy=spec.routing.effective_strategy,
        simulated=spec.simulated,
    )


def run_proof(run_id: str, tools_of: Callable[[Endpoint], Tools] = make_live_tools) -> None:
    if not ProofRun.claim(run_id):
        return
    row = ProofRun.objects.select_related("endpoint__status").get(pk=run_id)
    try:
        outcome = cache_proof.run(
            read_proof_facts(row.endpoint),
            tools_of(row.endpoint),
            lambda stage, shots: ProofRun.update_running(
                run_id, stage=stage, shots=_shots_as_json(shots)
            ),
        )
    except Exception:
        log.exception("Cache proof %s crashed; marking it as failed", run_id)
        _finish(run_id, RunState.FAILED, message=_CRASHED)
        raise
    _finish(
        run_id,
        RunState.DONE,
        proved=outcome.proved,
        shots=_shots_as_json(outcome.shots),
        verdicts=[{"ok": v.ok, "text": v.text} for v in outcome.verdicts],
    )


def _shots_as_json(shots: tuple[Shot, ...]) -> list[dict[str, Any]]:
    return [shot.as_json() for shot in shots]


def _finish(run_id: str, state: RunState, **fields: Any) -> None:
    ProofRun.finish(ProofRun.objects.filter(pk=run_id, state=RunState.RUNNING), state, **fields)


def run_calibration(
    run_id: str,
    ask_of: Callable[[Endpoint], calibration.Ask] | None = None,
    load: ReadLoad = read_load,
) -> None:
    if not Calibration.claim(run_id):
        return
    row = Calibration.objects.select_related("endpoint__status").get(pk=run_id)
    reason = ""
    try:
        ask = ask_of(row.endpoint) if ask_of else _live(row)
        if row.automatic:
            ask = CalibrationGuard(row.endpoint, ask, load).send
        measured = _measure(row, ask if ask_of else _settled(ask))
    except CalibrationAbandonedError as error:
        measured = calibration.CalibrationResult(problem=error.message)
        reason = error.reason
    except Exception:
        log.exception("Calibration %s crashed; marking it as failed", run_id)
        measured = calibration.CalibrationResult(problem=_CRASHED)
        _finish_calibration(row, measured, CalibrationEnd.CRASHED)
        raise
    done = measured.seconds_per_token is not None
    _finish_calibration(row, measured, "" if done else reason or CalibrationEnd.NO_RESULT)


def _finish_calibration(
    row: Calibration, measured: calibration.CalibrationResult, reason: str
) -> None:
    Calibration.finish(
        Calibration.objects.filter(pk=row.pk, state=RunState.RUNNING),
        RunState.FAILED if reason else RunState.DONE,
        measured.problem,
        worker=measured.worker,
        samples=[asdict(sample) for sample in measured.samples],
        seconds_per_token=measured.seconds_per_token,
        reason=reason,
    )
    if not row.automatic:
        return
    outcome = "done" if not reason else "failed" if reason in _FAILURES else "abandoned"
    increment("auto_calibrations", outcome=outcome, reason=str(reason))
    log.info("Automatic calibration of %s: %s %s", row.endpoint.name, outcome, reason)
    events.write(row.endpoint, [_as_event(measured, outcome)], timezone.now())


def _as_event(measured: calibration.CalibrationResult, outcome: str) -> events.Occurrence:
    if outcome == "done":
        each = 1e6 * (measured.seconds_per_token or 0.0)
        text = f"Automatic calibration: {each:,.0f} µs of prefill per prompt token."
        return events.Occurrence("CalibrationDone", text, measured.worker)
    text = f"Automatic calibration {outcome}: {measured.problem}"
    return events.Occurrence(f"Calibration{outcome.capitalize()}", text, measured.worker)


def _measure(row: Calibration, ask: calibration.Ask) -> calibration.CalibrationResult:
    workers = read_proof_facts(row.endpoint).workers
    if not workers:
        return calibration.CalibrationResult(
            problem="No worker is ready. Start it again when one is."
        )
    return calibration.calibrate(
        workers[0], ask, lambda stage: Calibration.update_running(str(row.pk), stage=stage)
    )


def _live(row: Calibration) -> calibration.Ask:
    deadline_s = calibration_guard.REQUEST_S if row.automatic else REQUEST_S
    return make_live_tools(row.endpoint, deadline_s).ask


def _settled(ask: calibration.Ask) -> calibration.Ask:
    def send(prompt: str, worker: str) -> PromptAnswer:
        # A fixed delay: no metric common to all versions and connectors shows that a worker has
        # finished its writes. The task may take ten minutes.
        time.sleep(SETTLE_S)
        return ask(prompt, worker)

    return send
