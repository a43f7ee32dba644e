"""Run a queued cache proof and store its result. A conditional UPDATE claims the row."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.utils import timezone

from dashboards.models import ProofRun, RunState
from dashboards.proof import cache_proof
from dashboards.proof.cache_proof import ProofFacts, Shot, Tools
from dashboards.proof.probe import LiveTools
from endpoints import selectors
from endpoints.models import Endpoint

log = logging.getLogger(__name__)


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


def run(run_id: str, tools_of: Callable[[Endpoint], Tools] = make_live_tools) -> None:
    mine = ProofRun.objects.filter(pk=run_id, state=RunState.QUEUED)
    if mine.update(state=RunState.RUNNING, touched_at=timezone.now()) != 1:
        return
    row = ProofRun.objects.select_related("endpoint__status").get(pk=run_id)
    try:
        outcome = cache_proof.run(
            read_proof_facts(row.endpoint),
            tools_of(row.endpoint),
            lambda stage, shots: _write(run_id, stage=stage, shots=_shots_as_json(shots)),
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
    _write(run_id, state=state, stage="", finished_at=timezone.now(), **fields)


def _write(run_id: str, **fields: Any) -> None:
    """Update the run while it is RUNNING. A run that was failed as abandoned keeps that state."""
    ProofRun.objects.filter(pk=run_id, state=RunState.RUNNING).update(
        touched_at=timezone.now(), **fields
    )
