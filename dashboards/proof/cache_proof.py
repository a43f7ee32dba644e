"""Cache proof: a long prompt sent cold, repeated, and sent to another worker.

A cold request stores its blocks in L1 and gradually in L2; vLLM writes to L2 only while its engine
steps. The second request is sent before waiting for L2 and provides these engine steps.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from console.processkit.metrics import MetricSample
from dashboards.boards.queries.metric_names import WRITTEN
from endpoints.prompt.client import PromptAnswer, PromptRequest, ask
from endpoints.prompt.token_sources import growth_by_tier, scrape

MAX_TOKENS = 24
# An L2 write of a few MiB takes well under a second; the rest allows for a busy machine.
L2_WAIT_S = 20.0
POLL_S = 0.25
# Counters are updated within one engine step after the response.
COUNTERS_WAIT_S = 3.0
# Minimum reduction in time for a hit to count as faster.
MAX_TIME_RATIO = 0.8

TITLES = {"cold": "Cold", "again": "Repeated", "other": "Other worker"}
# Colour by the main token source; the table lists all sources.
_NEAREST = ("L2", "L1", "device")
_PLACES = ("harbour", "orchard", "library", "station", "workshop", "garden", "market", "museum")
_THINGS = ("lantern", "ledger", "compass", "kettle", "ladder", "mirror", "basket", "anchor")


@dataclass(frozen=True, slots=True)
class ProofFacts:
    workers: tuple[str, ...]
    l1: bool
    l2: bool
    strategy: str
    simulated: bool


class Tools(Protocol):
    def ask(self, prompt: str, pin: str) -> PromptAnswer: ...

    def scrape(self, worker: str) -> list[MetricSample] | None: ...

    def pause(self, seconds: float) -> None: ...

    def clock(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Shot:
    """One of the three requests. `sources`: tokens by tier from the worker's counters; None if not
    measured.
    """

    step: str
    worker: str = ""
    ttft_s: float | None = None
    duration_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    sources: Mapping[str, int] | None = None
    ratio: float | None = None
    same_text: bool | None = None
    decision: str = ""
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "sources": None if self.sources is None else dict(self.sources)}


@dataclass(frozen=True, slots=True)
class ProofStepVerdict:
    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class ProofOutcome:
    shots: tuple[Shot, ...]
    verdicts: tuple[ProofStepVerdict, ...]

    @property
    def proved(self) -> bool:
        return len(self.shots) == 3 and all(verdict.ok for verdict in self.verdicts)


Progress = Callable[[str, tuple[Shot, ...]], object]


def prompt(nonce: str) -> str:
    """Return a new prompt of about 600 tokens. A prefix cache matches from the start, so the nonce
    comes first.
    """
    lines = [f"Inventory {nonce}. Each entry tells where one thing is kept."]
    for number in range(36):
        place, thing = _PLACES[number % 8], _THINGS[(number * 3 + number // 8) % 8]
        lines.append(f"Entry {number}: the {thing} is kept in the old {place} by the river.")
    lines.append("Question: where is the thing of entry 7 kept? Answer:")
    return "\n".join(lines)


def run(facts: ProofFacts, tools: Tools, progress: Progress) -> ProofOutcome:
    text = prompt(secrets.token_hex(8))
    written = {worker: _l2_bytes_written(tools.scrape(worker)) for worker in facts.workers}
    progress("Cold request", ())
    cold, cold_text = _send_request("cold", text, "", facts, tools)
    if cold.error:
        return ProofOutcome((cold,), (_failed(f"Cold request failed: {cold.error}"),))
    progress("Repeated request", (cold,))
    again, again_text = _send_request("again", text, "", facts, tools)
    again = _compared(again, again_text, cold, cold_text)
    verdicts = [judge_cold(cold), judge_again(again, cold, facts)]
    why_not = why_no_other_worker(facts, cold)
    if why_not:
        return ProofOutcome((cold, again), (*verdicts, _failed(why_not)))
    progress("Waiting for the L2 write", (cold, again))
    arrived = _wait_for_l2(cold.worker, written.get(cold.worker, 0.0), tools)
    progress("Request to another worker", (cold, again))
    target = next(worker for worker in facts.workers if worker != cold.worker)
    other, other_text = _send_request("other", text, target, facts, tools)
    other = _compared(other, other_text, cold, cold_text)
    verdicts.append(judge_other(other, cold, target, arrived, facts.simulated))
    return ProofOutcome((cold, again, other), tuple(verdicts))


def why_no_other_worker(facts: ProofFacts, cold: Shot) -> str:
    """Return the reason for skipping the request to another worker, "" if it can be sent."""
    if not facts.l2:
        text = "L2 is disabled: no other worker can read this prefix."
        return f"{text} Enable L2 in the endpoint's configuration."
    if not any(worker != cold.worker for worker in facts.workers):
        text = "Only one worker is ready: hits in L2 need a second one."
        return f"{text} Scale the endpoint to 2 replicas."
    return ""


def judge_cold(cold: Shot) -> ProofStepVerdict:
    cached = cold.cached_tokens if cold.cached_tokens is not None else _found(cold)
    if cached is None:
        return _failed(
            "The engine reported no cached token count: the cold request is not verified."
        )
    if cached:
        return _failed(f"The cold request hit {cached} cached tokens: it was not cold.")
    text = f"Cold: no cached tokens; {cold.worker} computed the whole prompt."
    return ProofStepVerdict(True, text)


def judge_again(again: Shot, cold: Shot, facts: ProofFacts) -> ProofStepVerdict:
    if again.error:
        return _failed(f"Repeated request failed: {again.error}")
    if again.worker != cold.worker:
        return _failed(
            f"The repeated request was routed to {again.worker} instead of {cold.worker}, "
            f"which has the prefix cached (strategy {facts.strategy})."
        )
    tiers = _tiers(again, ("device", "L1"))
    if not tiers:
        why = "" if facts.l1 else " L1 is disabled, and the device cache may be too small."
        return _failed(f"Repeated: cache miss on {again.worker}.{why}")
    return _judge_gain("Repeated", again, tiers, facts.simulated)


def judge_other(
    other: Shot, cold: Shot, target: str, arrived: bool, simulated: bool
) -> ProofStepVerdict:
    if other.error:
        return _failed(f"Request to {target} failed: {other.error}")
    if other.worker != target:
        return _failed(f"The request pinned to {target} was routed to {other.worker}.")
    if other.sources is None:
        return _failed(
            f"{target} did not report cache counters: the source of its tokens is unknown."
        )
    if not other.sources.get("L2"):
        text = f"Other worker: L2 miss on {target}."
        late = f"{cold.worker} had not written the prefix to L2 within {L2_WAIT_S:.0f} s"
        return _failed(
            text if arrived else f"{text} {late}. Check the cache tier on the Cache page."
        )
    return _judge_gain("Other worker", other, _tiers(other, ("L2",)), simulated)


def _judge_gain(name: str, shot: Shot, tiers: str, simulated: bool) -> ProofStepVerdict:
    """Times of simulated workers are shown, not judged: they measure only the machine's load."""
    if shot.same_text is False:
        return _failed(f"{name}: hit in {tiers}, but the output differs from the cold request.")
    if shot.ratio is None:
        return _failed(f"{name}: hit in {tiers}, but TTFT was not measured.")
    share = f"TTFT {100 * shot.ratio:.0f} % of cold"
    if shot.ratio > MAX_TIME_RATIO and not simulated:
        return _failed(f"{name}: hit in {tiers}, but {share} (limit {100 * MAX_TIME_RATIO:.0f} %).")
    text = f"{name}: hit in {tiers} on {shot.worker}, {share}, identical output."
    return ProofStepVerdict(True, text)


def _failed(text: str) -> ProofStepVerdict:
    return ProofStepVerdict(False, text)


def _tiers(shot: Shot, wanted: tuple[str, ...]) -> str:
    sources = shot.sources or {}
    return " and ".join(f"{tier} ({sources[tier]} tokens)" for tier in wanted if sources.get(tier))


def _found(shot: Shot) -> int | None:
    return None if shot.sources is None else sum(shot.sources.values())


def _send_request(
    step: str, text: str, pin: str, facts: ProofFacts, tools: Tools
) -> tuple[Shot, str]:
    before = {worker: tools.scrape(worker) for worker in facts.workers}
    answer = tools.ask(text, pin)
    if not answer.ok:
        return Shot(step, answer.worker, error=answer.error, decision=answer.decision), ""
    shot = Shot(
        step,
        worker=answer.worker,
        ttft_s=answer.ttft_s,
        duration_s=answer.duration_s,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        sources=_sources(answer, before.get(answer.worker), tools),
        decision=answer.decision,
    )
    return shot, answer.text


def _sources(
    answer: PromptAnswer, before: list[MetricSample] | None, tools: Tools
) -> Mapping[str, int] | None:
    if before is None:
        return None
    deadline = tools.clock() + COUNTERS_WAIT_S
    while True:
        after = tools.scrape(answer.worker)
        growth = None if after is None else growth_by_tier(before, after)
        if growth is not None and sum(growth.values()) >= (answer.cached_tokens or 0):
            return growth
        if tools.clock() >= deadline:
            return growth
        tools.pause(POLL_S)


def _l2_bytes_written(samples: list[MetricSample] | None) -> float:
    """Return bytes written beyond L1; the counter is absent before its first count."""
    return sum(
        sample.value
        for sample in samples or ()
        if sample.name == WRITTEN and not sample.labels.get("tier", "").startswith("0:")
    )


def _wait_for_l2(worker: str, before: float, tools: Tools) -> bool:
    """Return True once the worker has written to L2 since `before` and writes have stopped."""
    deadline = tools.clock() + L2_WAIT_S
    last = before
    while tools.clock() < deadline:
        now = _l2_bytes_written(tools.scrape(worker))
        if now > before and now == last:
            return True
        last = now
        tools.pause(POLL_S)
    return False


def _compared(shot: Shot, text: str, cold: Shot, cold_text: str) -> Shot:
    if shot.error:
        return shot
    ratio = shot.ttft_s / cold.ttft_s if shot.ttft_s is not None and cold.ttft_s else None
    return replace(shot, ratio=ratio, same_text=text == cold_text)


def make_rows(shots: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the stored requests with title, source and bar width in percent of the slowest."""
    slowest = max((shot.get("ttft_s") or 0 for shot in shots), default=0)
    return [_row(shot, slowest) for shot in shots]


def _row(shot: Mapping[str, Any], slowest: float) -> dict[str, Any]:
    sources, ttft, ratio = shot.get("sources"), shot.get("ttft_s"), shot.get("ratio")
    tiers = ", ".join(f"{tier} {tokens}" for tier, tokens in (sources or {}).items())
    main = max(_NEAREST, key=lambda tier: sources.get(tier, 0)) if sources else "computed"
    return {
        **shot,
        "title": TITLES.get(str(shot.get("step")), str(shot.get("step"))),
        "source": "not measured" if sources is None else tiers or "computed",
        "tier": main.lower(),
        "ratio_percent": None if ratio is None else round(100 * ratio),
        # Minimum width: an invisible bar would look missing.
        "width": max(1.0, round(100 * ttft / slowest, 1)) if ttft and slowest else 0.0,
    }


REQUEST_S = 90.0


@dataclass(frozen=True, slots=True)
class LiveTools:
    """Implementation of `Tools` with requests to a running endpoint; every call has a deadline."""

    url: str
    key: str = field(repr=False)
    model: str
    workers: Mapping[str, str]
    deadline_s: float = REQUEST_S

    def ask(self, prompt: str, pin: str) -> PromptAnswer:
        return ask(
            PromptRequest(
                self.url,
                self.key,
                self.model,
                prompt,
                max_tokens=MAX_TOKENS,
                pin=pin,
                deadline_s=self.deadline_s,
            )
        )

    def scrape(self, worker: str) -> list[MetricSample] | None:
        url = self.workers.get(worker)
        return scrape(url) if url else None

    def pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def clock(self) -> float:
        return time.monotonic()
