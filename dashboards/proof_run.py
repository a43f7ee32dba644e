"""Run a queued cache proof and store its result. A conditional UPDATE claims the row."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from django.utils import timezone

from console.core.fetch import fetch
from console.processkit.metrics import MetricSample, parse_samples
from dashboards.models import ProofRun, RunState
from dashboards.proof import cache_proof
from dashboards.proof.cache_proof import MAX_TOKENS, ProofFacts, Shot, Tools
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.prompt.client import PromptAnswer, PromptRequest, ask

log = logging.getLogger(__name__)
REQUEST_S = 90.0
SCRAPE_S = 2.0
_MAX_BYTES = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class LiveTools:
    """Every call has a deadline."""

    url: str
    key: str = field(repr=False)
    model: str
    workers: Mapping[str, str]

    def ask(self, prompt: str, pin: str) -> PromptAnswer:
        return ask(
            PromptRequest(
                self.url,
                self.key,
                self.model,
                prompt,
                max_tokens=MAX_TOKENS,
                pin=pin,
                deadline_s=REQUEST_S,
            )
        )

    def scrape(self, worker: str) -> list[MetricSample] | None:
        url = self.workers.get(worker)
        if not url:
            return None
        try:
            status, body = fetch(
                "GET", f"{url.rstrip('/')}/metrics", deadline_s=SCRAPE_S, max_bytes=_MAX_BYTES
            )
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        return parse_samples(body.decode(errors="replace"), "vllm:") if status == 200 else None

    def pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def clock(self) -> float:
        return time.monotonic()


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
