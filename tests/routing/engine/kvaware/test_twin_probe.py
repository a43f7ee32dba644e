"""Twin probe in a running router: each failed prediction has a reason and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from routing.engine.kvaware import twin_probe
from routing.engine.server import RouterServer
from tests.routing.engine.harness import admin, metric, router, until
from tests.routing.engine.kv.event_worker import KvEventWorker
from tests.support.fake_worker import FakeWorker

PROBES = "emberline_router_kv_probes_total"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin_probe, "FIRST_AFTER_S", 0.01)
    monkeypatch.setattr("routing.engine.kvaware.twin_probe.POLL_INTERVAL_S", 0.005)


def probing(*workers: FakeWorker, **kv: Any) -> Any:
    return router(*workers, strategy="kvaware", kv={"probe_interval_s": 0.05, **kv})


async def probes(server: RouterServer) -> dict[str, Any]:
    return dict((await admin(server, "/index")).json["kv"]["probes"])


def prober(server: RouterServer) -> twin_probe.Prober:
    listening = server._kvaware.listening
    assert listening is not None
    return listening.prober


async def verdict(server: RouterServer, wanted: str, worker: str = "w0") -> dict[str, Any]:
    found = prober(server)
    await until(lambda: worker in found.last and found.last[worker].result == wanted, wanted)
    return dict((await probes(server))["workers"][worker])


async def test_twin_probe_predicts_and_measures_both_forms_uncounted() -> None:
    async with KvEventWorker() as worker, probing(worker) as server:
        first = await verdict(server, "hit")
        assert first["predicted"] == first["reported"] > 0
        await until(lambda: prober(server).counts["w0", "hit"] >= 2, "the other form")
        paths = {one.target for one in worker.requests if one.target.startswith("/v1/c")}
        assert paths == {"/v1/chat/completions", "/v1/completions"}
        sent = worker.sent()
        assert sent[0] == sent[1]  # twins
        assert len({body["cache_salt"] for body in sent}) * 2 in (len(sent), len(sent) + 1)
        assert {body["max_tokens"] for body in sent} == {1}
        assert await metric(server, PROBES, worker="w0", result="hit") >= 2
        assert await metric(server, "emberline_router_kv_probe_success", worker="w0") == 1
        assert await metric(server, "emberline_router_kv_probe_timestamp_seconds") > 0
        # Nothing of it in what callers are counted by.
        assert await metric(server, "emberline_router_requests_total") == 0
        assert await metric(server, "emberline_router_routing_decisions_total") == 0
        assert await metric(server, "emberline_router_kv_prompts_total") == 0
        assert (await admin(server, "/decisions")).json["decisions"] == []
        assert server.router.table.workers["w0"].served == 0


def _silent(worker: KvEventWorker) -> None:
    worker.publishes = False


def _forgetful(worker: KvEventWorker) -> None:
    worker.keeps = False


def _mute(worker: KvEventWorker) -> None:
    worker.reports = False


@pytest.mark.parametrize(
    ("wrong", "result"),
    [(_silent, "not_told"), (_forgetful, "not_cached"), (_mute, "not_reported")],
)
async def test_each_probe_failure_has_a_reason_a_remedy_and_recovers(
    wrong: Callable[[KvEventWorker], None], result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twin_probe, "EVENTS_TIMEOUT_S", 0.2)
    async with KvEventWorker() as worker, probing(worker) as server:
        wrong(worker)
        prober(server).last.clear()
        found = await verdict(server, result)
        assert found["remedy"] == twin_probe.REMEDIES[result]
        assert await metric(server, "emberline_router_kv_probe_success", worker="w0") == 0
        monkeypatch.setattr(twin_probe, "EVENTS_TIMEOUT_S", 60.0)
        worker.publishes = worker.keeps = worker.reports = True
        assert (await verdict(server, "hit"))["remedy"] == ""
        assert await metric(server, "emberline_router_kv_probe_success", worker="w0") == 1


async def test_rejection_contains_the_worker_message_and_429_is_no_failure() -> None:
    async with KvEventWorker() as worker, probing(worker) as server:
        await verdict(server, "hit")
        worker.status = 401
        assert (await verdict(server, "refused"))["error"] == (
            '401: {"error": {"message": "not today"}}'
        )
        worker.status = 503
        busy = prober(server).counts["w0", "busy"]
        await until(lambda: prober(server).counts["w0", "busy"] > busy, "left alone")
        assert prober(server).last["w0"].result == "refused"


async def test_worker_that_closes_the_connection_is_unreachable() -> None:
    async with KvEventWorker() as worker, probing(worker) as server:
        await verdict(server, "hit")

        def hang_up(_body: dict[str, Any]) -> None:
            raise ConnectionResetError

        worker.before = hang_up
        assert (await verdict(server, "unreachable"))["error"]


async def test_model_without_a_template_is_probed_by_completions_only() -> None:
    async with KvEventWorker() as worker:
        worker.template = False
        async with probing(worker) as server:
            assert (await verdict(server, "hit"))["path"] == "/v1/completions"
            await until(lambda: prober(server).counts["w0", "hit"] >= 3, "more of them")
            chats = [one for one in worker.requests if one.target == "/v1/chat/completions"]
            assert len(chats) == 1


async def test_busy_worker_is_not_probed() -> None:
    async with KvEventWorker() as worker, probing(worker) as server:
        await verdict(server, "hit")
        server.router.table.workers["w0"].in_flight += 1  # a caller's request
        busy = prober(server).counts["w0", "busy"]
        await until(lambda: prober(server).counts["w0", "busy"] >= busy + 2, "turns given up")
        sent = len(worker.sent())
        await until(lambda: prober(server).counts["w0", "busy"] >= busy + 4, "and more of them")
        assert len(worker.sent()) == sent
        assert (await probes(server))["skipped"] == {"w0": "busy"}
        assert await metric(server, "emberline_router_kv_probe_success", worker="w0") == 1


async def test_request_between_the_twins_gets_the_worker_alone() -> None:
    async with KvEventWorker() as worker, probing(worker) as server:
        await verdict(server, "hit")
        known = server.router.table.workers["w0"]

        def begins(_body: dict[str, Any]) -> None:
            known.in_flight = 1

        worker.before = begins
        await until(lambda: prober(server).counts["w0", "busy"] >= 1, "the second twin given up")
        sent = worker.sent()
        assert sent[-1] != sent[-2]


async def test_workers_without_events_are_not_probed_and_0_disables_probes() -> None:
    async with FakeWorker() as worker, probing(worker) as server:
        await until(lambda: prober(server).counts["w0", "not_followed"] >= 2, "its turns")
        assert all(one.target == "/kv_event_sources" for one in worker.requests)
    async with KvEventWorker() as telling, probing(telling, probe_interval_s=0) as server:
        listening = server._kvaware.listening
        assert listening is not None
        await until(lambda: listening.subscriber.ranks("w0"), "followed")
        assert listening._probing is None
        assert telling.sent() == []


async def test_workers_are_probed_in_turn_and_removed_ones_leave_nothing() -> None:
    async with KvEventWorker() as one, KvEventWorker() as two, probing(one, two) as server:
        await verdict(server, "hit", "w0")
        await verdict(server, "hit", "w1")
        found = prober(server)
        counts = [found.counts["w0", "hit"], found.counts["w1", "hit"]]
        assert abs(counts[0] - counts[1]) <= 1
        server.router.table.workers.pop("w1")
        await until(lambda: "w1" not in found.last, "forgotten")
        assert not [name for name in found.counts if name[0] == "w1"]


async def test_each_of_several_ranks_is_probed_by_name() -> None:
    async with KvEventWorker(ranks=2) as worker, probing(worker) as server:
        await verdict(server, "hit")
        await until(lambda: prober(server).counts["w0", "hit"] >= 4, "both ranks, both forms")
        ranks = worker.answered_by
        # Twins go to one rank; unnamed prompts would take turns. A probe may end after its first.
        assert sum(first == second for first, second in pairwise(ranks)) >= 4
        assert set(ranks) == {0, 1}
        assert not any(prober(server).counts["w0", result] for result in twin_probe.FAILURES)


async def test_ranks_that_cannot_be_named_are_not_probed() -> None:
    async with KvEventWorker(ranks=2) as worker, probing(worker, probe_interval_s=0) as server:
        listening = server._kvaware.listening
        assert listening is not None
        await until(lambda: listening.subscriber.ranks("w0") == 2, "followed")
        index = listening.subscriber.index
        index.ranks["w0", 5] = index.ranks.pop(("w0", 1))
        index.ranks["w0", 5].number = 5
        await listening.prober.probe(server.router.table.workers["w0"])
        assert listening.prober.skipped == {"w0": "several_ranks"}
        index.ranks["w0", 1] = index.ranks.pop(("w0", 5))
