"""Run queued cache proofs and calibrations and store their results, failures included."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.utils import timezone

from dashboards.costs.formulas import calibration
from dashboards.models import Calibration, ProofRun, RunState
from dashboards.proof import cache_proof
from dashboards.proof.cache_proof import ProofFacts, Shot, Tools
from dashboards.proof.probe import LiveTools
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.prompt.client import PromptAnswer

log = logging.getLogger(__name__)

SETTLE_S = 3.0
"""Before each request of a calibration: a worker writes a prompt to L1 and L2 after it has
answered, and a short one behind a long one would be told to have taken that time."""


def make_live_tools(endpoint: Endpoint) -> Tools:
    workers = {w.name: w.url for w in selectors.worker_facts(endpoint) if w.ready}
    key = selectors.console_key(endpoint)
    return LiveTools(selectors.ask_url(endpoint), key, endpoint.name, workers)


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
        _finish(run_id, RunState.FAILED, message="The console itself failed; its log says how.")
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
    ProofRun.update_running(run_id, state=state, stage="", finished_at=timezone.now(), **fields)


def run_calibration(
    run_id: str, ask_of: Callable[[Endpoint], calibration.Ask] | None = None
) -> None:
    if not Calibration.claim(run_id):
        return
    row = Calibration.objects.select_related("endpoint__status").get(pk=run_id)
    try:
        measured = _measure(row, (ask_of or _live)(row.endpoint))
    except Exception:
        log.exception("calibration %s crashed", run_id)
        Calibration.update_running(
            run_id, state=RunState.FAILED, stage="", message="The console itself failed."
        )
        raise
    Calibration.update_running(
        run_id,
        state=RunState.DONE if measured.seconds_per_token else RunState.FAILED,
        stage="",
        worker=measured.worker,
        samples=[asdict(sample) for sample in measured.samples],
        seconds_per_token=measured.seconds_per_token,
        message=measured.problem,
    )


def _measure(row: Calibration, ask: calibration.Ask) -> calibration.CalibrationResult:
    workers = read_proof_facts(row.endpoint).workers
    if not workers:
        return calibration.CalibrationResult(
            problem="No worker is ready. Run it again when one is."
        )
    return calibration.calibrate(
        workers[0], ask, lambda stage: Calibration.update_running(str(row.pk), stage=stage)
    )


def _live(endpoint: Endpoint) -> calibration.Ask:
    tools = make_live_tools(endpoint)

    def ask(prompt: str, worker: str) -> PromptAnswer:
        # A fixed delay: no metric common to all versions and connectors shows that a worker has
        # finished its writes. The task may take ten minutes.
        time.sleep(SETTLE_S)
        return tools.ask(prompt, worker)

    return ask
