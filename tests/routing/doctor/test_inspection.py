"""Queries to hanging, malformed, rejecting and unreachable routers and workers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from routing.analysis.kv_index import read_index
from routing.doctor.examination import examine, run_checks
from routing.doctor.inspection import CHAT, PLAIN, Limits, NamedWorker, gather_facts
from tests.routing.doctor.stubs import TOKENS, WORKER, router_of
from tests.support.http_stub import HANG, Stub, http_stub

QUICK = Limits(question_s=1.0, all_s=2.0)


@pytest.fixture
def worker() -> Iterator[Stub]:
    with http_stub(dict(WORKER)) as stub:
        yield stub


def test_worker_status_is_parsed(worker: Stub) -> None:
    with http_stub(router_of(worker.url)) as router:
        facts = gather_facts("demo", [router.url])
    (found,) = facts.workers
    assert (found.name, found.version.found, found.models.found[0].root) == ("w0", "0.32.0", "r")
    assert found.cache.found is not None
    assert (found.cache.found.block_size, found.cache.found.hash_algorithm) == ("16", "xxhash")
    (publisher,) = found.publishers.found or ()
    assert (publisher.enabled, publisher.endpoint, publisher.replay) == (True, "tcp://*:1", "")
    assert found.tokens.found == {PLAIN: (1, 2), CHAT: (1, 2)}
    assert facts.wanted is None
    requested = {(method, path) for method, path, _ in worker.seen}
    assert requested == {("POST" if path == "/tokenize" else "GET", path) for path in WORKER}


def test_rejected_chat_is_a_valid_response(worker: Stub) -> None:
    """A model without a chat template."""

    def tokenize(_path: str, body: bytes) -> tuple[int, Any]:
        return (400, "no template") if b"messages" in body else (200, TOKENS)

    worker.answers["/tokenize"] = tokenize
    with http_stub(router_of(worker.url)) as router:
        (found,) = gather_facts("demo", [router.url]).workers
    assert found.tokens.found == {PLAIN: (1, 2), CHAT: None}


@pytest.mark.parametrize("answer", [(500, "boom"), (200, "<html>"), (200, []), (404, "none")])
@pytest.mark.parametrize("path", WORKER)
def test_malformed_worker_response_affects_only_its_worker(
    worker: Stub, path: str, answer: Any
) -> None:
    worker.answers[path] = answer
    with http_stub(router_of(worker.url)) as router:
        found = examine("demo", [router.url])
    assert found.workers == ("w0",)
    assert "RouterSilent" in {one.code for one in found.passed}
    assert "WorkerNotReached" in {one.code for one in found.passed}


@pytest.mark.parametrize("path", ["/workers", "/config", "/index", "/decisions", "/metrics"])
@pytest.mark.parametrize(
    "answer",
    [(500, "boom"), (200, "<html>"), (200, [1]), (200, {}), (200, {"workers": [1], "kv": [2]})],
)
def test_malformed_router_response_is_at_most_a_finding(
    worker: Stub, path: str, answer: Any
) -> None:
    with http_stub(router_of(worker.url, **{path: answer})) as router:
        found = examine("demo", [router.url], [NamedWorker("w0", worker.url)])
    assert found.workers == ("w0",)
    assert len(found.outcomes) == len(found.passed) + len(found.skipped) + len(
        [o for o in found.outcomes if o.findings]
    )


def test_hanging_worker_costs_at_most_the_deadline(worker: Stub) -> None:
    slow = dict.fromkeys(WORKER, (HANG, ""))
    with http_stub(slow) as one, http_stub(router_of(worker.url, *[one.url] * 40)) as router:
        begun = time.monotonic()
        facts = gather_facts("demo", [router.url], limits=QUICK)
        # Bounded by the deadline, whatever the number of workers: 41 of them would take far more.
        assert time.monotonic() - begun < 30
        one.hang.set()
    assert len(facts.workers) == 41
    assert facts.workers[0].answers
    silent = [found for found in facts.workers if not found.answers]
    assert len(silent) == 40
    # The last ones had less than the deadline of one question.
    assert {re.sub(r"\d\.\d", "N", found.version.error) for found in silent} <= {
        "no response within N s",
        "not queried in time",
        "/version was not queried in time",
    }


def test_unreachable_worker_and_router() -> None:
    found = run_checks(
        gather_facts("demo", ["http://127.0.0.1:9"], [NamedWorker("w0", "http://127.0.0.1:9")])
    )
    assert [finding.code for finding in found.findings] == ["RouterSilent", "WorkerNotReached"]
    assert run_checks(gather_facts("demo", [""])).findings[0].evidence == (
        "The endpoint has no router yet.",
    )


def test_index_of_any_shape_is_parsed() -> None:
    assert read_index({}) is None
    odd = {
        "telling": "yes",
        "blocks": "many",
        "block_sizes": {},
        "sources": [1, {"worker": 2}],
        "honesty": {"w0": None},
        "fallbacks": [1],
        "tokens": 3,
        "recent": "x",
        "probes": [],
        "tiers": {"w": 1},
    }
    found = read_index({"kv": odd})
    assert found is not None
    assert (found.telling, found.blocks, found.block_sizes) == (False, 0, ())
    assert [source.worker for source in found.sources] == ["", ""]
    assert found.honesty["w0"].believed
    assert found.recent is None
    infinite = read_index({"kv": {"blocks": float("inf"), "sources": [{"lag_s": float("nan")}]}})
    assert infinite is not None
    assert (infinite.blocks, infinite.sources[0].lag_s) == (0, 0.0)
