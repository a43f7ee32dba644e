"""Cache proof: verdicts follow the measurements of two simulated workers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from console.processkit.metrics import MetricSample
from dashboards.proof import cache_proof
from dashboards.proof.cache_proof import ProofFacts, ProofOutcome
from endpoints.prompt.client import PromptAnswer
from endpoints.prompt.token_sources import CACHED

A, B = "demo-worker-0", "demo-worker-1"
BOTH = ProofFacts((A, B), l1=True, l2=True, strategy="prefixaware", simulated=False)
TOKENS = 600


@dataclass
class ProofWorkers:
    """Two workers with counters, and a clock that advances only in `pause`."""

    route: list[str] = field(default_factory=lambda: [A, A])
    sources: list[tuple[str, int]] = field(
        default_factory=lambda: [("", 0), ("device", 576), ("disk", 576)]
    )
    ttft: list[float] = field(default_factory=lambda: [4.0, 0.2, 0.5])
    texts: list[str] = field(default_factory=lambda: ["blue", "blue", "blue"])
    fails: dict[int, str] = field(default_factory=dict)
    l2_after_s: float = 1.0
    silent: bool = False
    without_counter: bool = False
    obeys_pin: bool = True
    now: float = 0.0
    counts: dict[tuple[str, str], float] = field(default_factory=dict)
    prompts_sent: list[tuple[str, str]] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)

    def ask(self, prompt: str, pin: str) -> PromptAnswer:
        number = len(self.prompts_sent)
        self.prompts_sent.append((prompt, pin))
        self.sent_at.append(self.now)
        worker = pin if pin and self.obeys_pin else self.route[min(number, 1)]
        if number in self.fails:
            return PromptAnswer(error=self.fails[number], worker=worker)
        source, tokens = self.sources[number]
        if source:
            key = (worker, source)
            self.counts[key] = self.counts.get(key, 0) + tokens
        return PromptAnswer(
            text=self.texts[number],
            worker=worker,
            ttft_s=self.ttft[number],
            duration_s=5.0,
            prompt_tokens=TOKENS,
            cached_tokens=tokens,
            completion_tokens=24,
            status=200,
        )

    def scrape(self, worker: str) -> list[MetricSample] | None:
        if self.silent:
            return None
        samples = []
        if not self.without_counter:
            for source in ("device", "host", "disk", "p2p", "external_unspecified"):
                value = self.counts.get((worker, source), 0.0)
                samples.append(MetricSample(CACHED, {"source": source}, value))
        samples.append(MetricSample(cache_proof.WRITTEN, {"tier": "0:primary"}, self.now * 1e6))
        if worker == A and self.prompts_sent and self.now >= self.l2_after_s:
            samples.append(MetricSample(cache_proof.WRITTEN, {"tier": "1:emberline"}, 4e6))
        return samples

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def run(workers: ProofWorkers, facts: ProofFacts = BOTH) -> ProofOutcome:
    return cache_proof.run(facts, workers, lambda _stage, _shots: None)


def join_failed_verdicts(outcome: ProofOutcome) -> str:
    return " ".join(verdict.text for verdict in outcome.verdicts if not verdict.ok)


def test_three_requests_prove_the_cache() -> None:
    workers = ProofWorkers()
    outcome = run(workers)
    assert outcome.proved, join_failed_verdicts(outcome)
    cold, again, other = outcome.shots
    assert (cold.worker, again.worker, other.worker) == (A, A, B)
    assert (again.sources, other.sources) == ({"device": 576}, {"L2": 576})
    assert (again.ratio, other.ratio) == (0.05, 0.125)
    assert other.same_text
    prompts = {prompt for prompt, _ in workers.prompts_sent}
    assert len(prompts) == 1
    assert [pin for _, pin in workers.prompts_sent] == ["", "", B]


def test_every_run_has_a_unique_prompt_from_the_first_words() -> None:
    first, second = ProofWorkers(), ProofWorkers()
    run(first)
    run(second)
    assert first.prompts_sent[0][0][:40] != second.prompts_sent[0][0][:40]


def test_other_worker_is_queried_only_with_l2() -> None:
    """The write comes after a while, and L1's own writes do not count as L2's."""
    workers = ProofWorkers(l2_after_s=7.0)
    assert run(workers).proved
    assert workers.sent_at[2] >= 7.0


def test_wait_for_l2_is_bounded_and_stated_in_the_verdict() -> None:
    workers = ProofWorkers(l2_after_s=1e9, sources=[("", 0), ("device", 576), ("", 0)])
    outcome = run(workers)
    assert not outcome.proved
    assert "L2 miss on demo-worker-1" in join_failed_verdicts(outcome)
    assert "had not written the prefix to L2 within 20 s" in join_failed_verdicts(outcome)
    assert workers.now < 30


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (ProofFacts((A,), True, True, "prefixaware", True), "Only one worker"),
        (ProofFacts((A, B), True, False, "prefixaware", True), "L2 is disabled"),
    ],
)
def test_impossible_step_is_reported_and_not_run(facts: ProofFacts, why: str) -> None:
    workers = ProofWorkers()
    outcome = run(workers, facts)
    assert not outcome.proved
    assert why in join_failed_verdicts(outcome)
    assert len(workers.prompts_sent) == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sources": [("host", 64), ("device", 576), ("disk", 576)]}, "it was not cold"),
        ({"route": [A, B]}, "was routed to demo-worker-1 instead"),
        ({"sources": [("", 0), ("", 0), ("disk", 576)]}, "cache miss on demo-worker-0"),
        ({"sources": [("", 0), ("device", 576), ("device", 576)]}, "L2 miss on demo-worker-1"),
        ({"texts": ["blue", "blue", "red"]}, "output differs"),
        ({"ttft": [4.0, 0.2, 3.9]}, "TTFT 98 % of cold (limit 80 %)"),
        ({"fails": {0: "HTTP 503"}}, "Cold request failed: HTTP 503"),
        ({"fails": {1: "HTTP 500"}}, "Repeated request failed: HTTP 500"),
        ({"fails": {2: "timeout"}}, "Request to demo-worker-1 failed: timeout"),
        ({"obeys_pin": False}, "pinned to demo-worker-1 was routed to"),
        ({"silent": True}, "did not report cache counters"),
        ({"without_counter": True}, "did not report cache counters"),
    ],
)
def test_failed_step_is_never_called_proved(changes: dict[str, Any], why: str) -> None:
    outcome = run(ProofWorkers(**changes))
    assert not outcome.proved
    assert why in join_failed_verdicts(outcome)


def test_times_of_simulated_workers_are_not_judged() -> None:
    slow = ProofWorkers(ttft=[4.0, 0.2, 5.0])
    outcome = run(slow, replace(BOTH, simulated=True))
    assert outcome.proved, join_failed_verdicts(outcome)
    assert "TTFT 125 % of cold" in outcome.verdicts[-1].text


def test_l1_counts_for_the_second_request_and_unnamed_tiers_for_l2() -> None:
    workers = ProofWorkers(sources=[("", 0), ("host", 576), ("external_unspecified", 576)])
    outcome = run(workers)
    assert outcome.proved, join_failed_verdicts(outcome)
    assert outcome.shots[1].sources == {"L1": 576}


def test_shots_can_be_stored() -> None:
    import json

    stored = json.loads(json.dumps([shot.as_json() for shot in run(ProofWorkers()).shots]))
    assert stored[2]["sources"] == {"L2": 576}
