"""Run a queued calibration once and store its result, failures included."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict

from dashboards.costs.formulas import calibration
from dashboards.models import Calibration, RunState
from dashboards.proof_run import make_live_tools, read_proof_facts
from endpoints.models import Endpoint
from endpoints.prompt.client import PromptAnswer

log = logging.getLogger(__name__)

SETTLE_S = 3.0
"""Before each request: a worker writes a prompt to L1 and L2 after it has answered, and a short one
behind a long one would be told to have taken that time."""


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
