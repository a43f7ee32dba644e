"""Subscriptions over real sockets: lost messages, restarts, and workers without events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from routing.engine.kv import chain, recovery, subscriber
from routing.engine.kv.index import Index
from routing.engine.kv.match import match
from routing.engine.kv.stream import Stream
from routing.engine.kv.subscriber import Subscriber, SubscriptionTarget
from tests.routing.engine.harness import until
from tests.routing.engine.kv.builders import engine_hash
from tests.support.faultproxy import FaultProxy
from tests.support.kv_publisher import LossyProxy, Publisher
from tests.support.ports import free_port

SECRET = b"s" * 32
P = [1, 2, 3, 4, 5, 6, 7, 8]


def stored(tokens: list[int], first: int = 0, block: int = 2) -> dict[str, Any]:
    ends = [tokens[:end] for end in range((first + 1) * block, len(tokens) + 1, block)]
    return {
        "type": "BlockStored",
        "block_hashes": [engine_hash(end) for end in ends],
        "parent_block_hash": engine_hash(tokens[: first * block]) if first else None,
        "token_ids": tokens[first * block :],
        "block_size": block,
        "medium": "GPU",
        "extra_keys": [None] * len(ends),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def removed(tokens: list[int]) -> dict[str, Any]:
    hashes = [engine_hash(tokens)]
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU", "group_idx": 0}


CLEARED = {"type": "AllBlocksCleared"}


class Worker:
    """The HTTP side of a worker, as far as discovery uses it."""

    def __init__(self, *publishers: Publisher) -> None:
        self.answer: tuple[int, Any] | Exception = (
            200,
            {str(rank): item.source() for rank, item in enumerate(publishers)},
        )
        self.probes = 0

    async def ask(self, path: str) -> tuple[int, bytes]:
        assert path == "/kv_event_sources"
        self.probes += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        status, data = self.answer
        return status, json.dumps(data).encode()

    def target(self, name: str = "a", **more: Any) -> SubscriptionTarget:
        return SubscriptionTarget(name, "127.0.0.1", "m", self.ask, **more)


class Following:
    def __init__(self) -> None:
        self.logged: list[tuple[str, dict[str, Any]]] = []
        self.index = Index(SECRET)
        self.subscriber = Subscriber(self.index, self.log, (OSError,))

    def log(self, _level: str, event: str, **facts: Any) -> None:
        self.logged.append((event, facts))

    def held(self, tokens: list[int], block: int = 2) -> dict[str, int]:
        names = chain.extend_chain(self.index.root("m"), chain.pack_tokens(tokens), block)
        found = match(self.index, {block: names}).workers
        return {worker: item.tokens for worker, item in found.items()}

    async def holds(self, tokens: list[int], **expected: int) -> None:
        await until(lambda: self.held(tokens) == expected, f"{self.held(tokens)}, {self.status}")

    async def published(self, publisher: Publisher, tokens: list[int]) -> None:
        """Without replay: a subscription takes a moment to arrive, and what came before is lost."""

        def has_received() -> bool:
            publisher.publish(stored(tokens))
            return bool(self.held(tokens))

        await until(has_received, "a live message")

    @property
    def status(self) -> list[dict[str, Any]]:
        return self.subscriber.status()

    def one(self) -> dict[str, Any]:
        (status,) = self.status
        return status

    def counts(self, reason: str) -> int:
        return sum(item.get("counts", {}).get(reason, 0) for item in self.status)

    async def following(self, *publishers: Publisher) -> None:
        """Live messages of these publishers arrive from now on."""
        await until(
            lambda: self.status and all(item["state"] == "following" for item in self.status),
            "following",
        )
        for publisher in publishers:
            await until(publisher.has_subscriber, "a subscription")


@asynccontextmanager
async def following(*targets: SubscriptionTarget) -> AsyncIterator[Following]:
    found = Following()
    found.subscriber.follow(targets)
    try:
        yield found
    finally:
        async with asyncio.timeout(60):
            await found.subscriber.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "TICK_S", 0.02)
    monkeypatch.setattr(subscriber, "RETRY_S", (0.02, 0.05))
    monkeypatch.setattr(recovery, "IDLE_POLL_S", 0.2)
    # A busy machine may take longer than the default, and what was known would be dropped.
    monkeypatch.setattr(recovery, "REPLAY_TIMEOUT_S", 60.0)


async def test_history_and_live_events_are_indexed() -> None:
    with Publisher() as publisher:
        publisher.publish(stored(P[:4]))
        async with following(Worker(publisher).target()) as found:
            await found.holds(P, a=4)
            await found.following(publisher)
            publisher.publish(stored(P, 2))
            await found.holds(P, a=8)
            publisher.publish(removed(P))
            await found.holds(P, a=6)
            publisher.publish(CLEARED)
            await found.holds(P)
            status = found.one()
            assert status["partial"] is False
            assert status["last"] == 3
            assert status["endpoint"] == publisher.events
            assert status["errors"] == status["skipped"] == {}


async def test_older_replay_format_is_parsed() -> None:
    with Publisher() as publisher:
        publisher.topic_in_replay = False
        publisher.publish(stored(P))
        async with following(Worker(publisher).target()) as found:
            await found.holds(P, a=8)


async def test_lost_messages_are_requested_again() -> None:
    with Publisher() as publisher, LossyProxy(publisher) as proxy:
        target = Worker().target(events=(proxy.events,), replays=(publisher.replay,))
        async with following(target) as found:
            await found.following(publisher)
            publisher.publish(stored(P[:2]))
            await found.holds(P, a=2)
            proxy.lose = {1, 2}
            publisher.publish(stored(P[:4], 1))
            publisher.publish(removed(P[:4]))
            publisher.publish(stored([9, 9]))
            await found.holds([9, 9], a=2)
            assert found.held(P) == {"a": 2}, found.status  # the lost removal too
            await until(lambda: proxy.lost == 2, "both lost")  # a poll may be faster
            await until(lambda: found.counts("gap_filled") or found.counts("poll_found"), "its end")


async def test_unread_reply_is_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop was held for longer than REPLAY_TIMEOUT_S; its timers run before its sockets."""
    replay = Stream.replay
    monkeypatch.setattr(recovery, "IDLE_POLL_S", 60.0)
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:

            def held_up(self: Stream, start: int, fresh: bool) -> None:
                replay(self, start, fresh)
                assert self._dealer is not None
                assert self._dealer.poll(15_000), "an answer"
                assert self.follower._ask is not None
                self.follower._ask.received_at -= 2 * recovery.REPLAY_TIMEOUT_S
                for _ in range(2):
                    found.subscriber._tick()

            await found.following(publisher)
            publisher.publish(stored(P[:2]))
            await found.holds(P, a=2)
            monkeypatch.setattr(Stream, "replay", held_up)
            publisher.lose = {1}
            publisher.publish(stored(P[:4], 1))
            publisher.publish(stored([9, 9]))
            await found.holds([9, 9], a=2)
            assert found.held(P) == {"a": 4}, found.status
            await until(lambda: found.counts("gap_filled") == 1, "its end")
            assert found.counts("replay_timeout") == 0


async def test_deadlines_are_extended_by_one_tick_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ZeroMQ's threads were paused, too, and what has arrived is not in the sockets yet."""
    monkeypatch.setattr(subscriber, "TICK_S", 60.0)
    monkeypatch.setattr(recovery, "IDLE_POLL_S", 60.0)
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:
            await found.following(publisher)
            (stream,) = found.subscriber._streams_of("a")
            checked: list[float] = []
            monkeypatch.setattr(stream.follower, "tick", checked.append)
            for paused_s, checks in ((1000, 0), (1000, 1), (0, 2), (1000, 2)):
                found.subscriber._ticked_at -= paused_s
                found.subscriber._tick()
                stream.step(time.perf_counter() + 5)
                assert len(checked) == checks


async def test_polling_finds_a_lost_last_message() -> None:
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:
            await found.following(publisher)
            publisher.lose = {0}
            publisher.publish(stored(P))
            await found.holds(P, a=8)
            await until(lambda: found.counts("poll_found") == 1, "its end")


async def test_restart_clears_the_index() -> None:
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:
            publisher.publish(stored(P))
            await found.holds(P, a=8)
            publisher.restart()
            await found.holds(P)
            publisher.publish(stored(P[:2]))
            await found.holds(P, a=2)
            reasons = ("restart_replay", "restart_sequence")
            assert sum(found.counts(reason) for reason in reasons) >= 1


async def test_reconnect_to_the_same_process_keeps_the_index() -> None:
    with Publisher() as publisher:
        publisher.publish(stored(P))
        async with FaultProxy("127.0.0.1", publisher.events_port) as proxy:
            target = Worker().target(
                events=(f"tcp://127.0.0.1:{proxy.port}",), replays=(publisher.replay,)
            )
            async with following(target) as found:
                await found.holds(P, a=8)
                proxy.mode, proxy.after = "cut", 0
                publisher.publish(stored([9, 9]))  # breaks the connection
                await until(lambda: found.counts("disconnected"), "disconnected")
                proxy.mode = "pass"
                await found.holds([9, 9], a=2)
                assert found.held(P) == {"a": 8}
                await until(lambda: found.counts("connected") >= 2, "connected again")


async def test_without_replay_a_gap_drops_everything() -> None:
    with Publisher(replay=False) as publisher:
        async with following(Worker(publisher).target()) as found:
            await found.published(publisher, P)
            publisher.lose = {publisher.number}
            publisher.publish(stored([7, 7]))
            publisher.publish(stored([9, 9]))
            await found.holds([9, 9], a=2)
            assert found.held(P) == {}
            assert found.one()["partial"] is True


async def test_truncated_history_is_shown() -> None:
    with Publisher(buffer=1) as publisher:
        publisher.publish(stored(P[:4]))
        publisher.publish(stored(P, 2))
        async with following(Worker(publisher).target()) as found:
            await until(lambda: found.status[0].get("parked") == 2, "parked")
            assert found.one()["partial"] is True
            assert found.held(P) == {}
            publisher.publish(stored(P[:4]))  # as kv_cache_report_mode full does
            await found.holds(P, a=8)


async def test_ranks_of_one_worker() -> None:
    with Publisher() as first, Publisher(rank=1) as second:
        first.publish(stored(P[:2]))
        second.publish(stored(P))
        async with following(Worker(first, second).target()) as found:
            await found.holds(P, a=8)
            assert sorted(item["rank"] for item in found.status) == [0, 1]
            names = chain.extend_chain(found.index.root("m"), chain.pack_tokens(P), 2)
            assert match(found.index, {2: names}).workers["a"].rank == 1
            assert all(item["errors"] == {} for item in found.status)


async def test_ranks_count_once_all_are_followed() -> None:
    with Publisher() as first, Publisher(rank=1) as second:
        second.stop()  # not started yet
        async with following(Worker(first, second).target()) as found:
            await until(lambda: found.subscriber.followed("a"), "the first rank")
            assert found.subscriber.ranks("a") == 0
            second.restart()
            await until(lambda: found.subscriber.ranks("a") == 2, "both")


async def test_two_workers_with_different_block_sizes() -> None:
    with Publisher() as first, Publisher() as second:
        first.publish(stored(P, block=2))
        second.publish(stored(P, block=4))
        targets = [Worker(first).target("a"), Worker(second).target("b")]
        async with following(*targets) as found:
            await until(lambda: found.index.block_sizes() == {2, 4}, "both")
            assert found.held(P, 2) == {"a": 8}
            assert found.held(P, 4) == {"b": 8}


async def test_worker_without_events_is_shown_until_it_has_some() -> None:
    with Publisher() as publisher:
        worker = Worker()
        async with following(worker.target()) as found:
            await until(lambda: found.status[0].get("reason") == "events_off", "reason")
            assert "--kv-events-config" in found.one()["message"]
            await until(lambda: worker.probes > 3, "asked again")
            assert [event for event, _ in found.logged] == ["kv_events_unavailable"]  # logged once
            worker.answer = Worker(publisher).answer
            publisher.publish(stored(P))
            await found.holds(P, a=8)


async def test_failed_discovery_is_retried() -> None:
    with Publisher() as publisher:
        worker = Worker(publisher)
        worker.answer, good = OSError("refused"), worker.answer
        async with following(worker.target()) as found:
            await until(lambda: found.status[0].get("reason") == "unreachable", "reason")
            worker.answer = good
            await found.following(publisher)


async def test_failed_rediscovery_keeps_the_streams() -> None:
    with Publisher() as publisher:
        worker = Worker(publisher)
        publisher.publish(stored(P))
        async with following(worker.target()) as found:
            await found.holds(P, a=8)
            worker.answer = OSError("busy")
            requested = worker.probes
            found.subscriber.worker_up("a")
            await until(lambda: worker.probes > requested, "probes")
            await asyncio.sleep(0)
            assert found.held(P) == {"a": 8}


async def test_changed_address_replaces_the_stream() -> None:
    with Publisher() as first, Publisher() as second:
        worker = Worker(first)
        first.publish(stored(P))
        second.publish(stored([9, 9]))
        async with following(worker.target()) as found:
            await found.holds(P, a=8)
            worker.answer = Worker(second).answer
            found.subscriber.worker_up("a")
            await found.holds([9, 9], a=2)
            assert found.held(P) == {}


async def test_unreachable_publisher_is_reported_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("routing.engine.kv.subscriber.CONNECT_GRACE_S", 0.05)
    target = Worker().target(events=(f"tcp://127.0.0.1:{free_port()}",))
    async with following(target) as found:
        await until(lambda: found.logged, "logged")
        event, facts = found.logged[0]
        assert (event, facts["reason"]) == ("kv_events_unavailable", "not_connected")
        assert "bind:tcp://*:PORT" in facts["remedy"]
        assert found.one()["state"] == "connecting"


async def test_router_binds_for_a_worker_that_connects_out() -> None:
    port = free_port()
    target = Worker().target(events=(f"bind:tcp://127.0.0.1:{port}",))
    async with following(target) as found:
        with Publisher(replay=False, dial=f"tcp://127.0.0.1:{port}") as publisher:
            await found.published(publisher, P)
            other = Worker().target("b", events=(f"bind:tcp://127.0.0.1:{port}",))
            found.subscriber.follow([target, other])
            await until(
                lambda: any(item.get("reason") == "endpoint_shared" for item in found.status),
                "refused",
            )


async def test_lost_worker_is_cleared_at_once() -> None:
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:
            publisher.publish(stored(P))
            await found.holds(P, a=8)
            found.subscriber.worker_lost("a")
            assert found.held(P) == {}
            found.subscriber.worker_up("a")
            await found.holds(P, a=8)


async def test_reset_and_changed_start_time() -> None:
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:
            publisher.publish(stored(P))
            await found.holds(P, a=8)
            found.subscriber.cache_reset("a")
            assert found.held(P) == {}
            found.subscriber.process_started("a", 1000.0)
            found.subscriber.process_started("a", 2000.0)
            await found.holds(P, a=8)
            assert found.counts("reset") == found.counts("restart_process") == 1


async def test_removed_worker_leaves_nothing() -> None:
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:
            publisher.publish(stored(P))
            await found.holds(P, a=8)
            found.subscriber.follow([])
            assert found.held(P) == {}
            assert found.status == []
            await until(lambda: not found.index.sweeping, "swept")
            assert len(found.index) == 0


async def test_invalid_messages_are_counted_and_skipped() -> None:
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:
            await found.following(publisher)
            publisher.send([b"t", b"short", b"p"])
            publisher.send([b"t", (0).to_bytes(8, "big"), b"\xc1"])
            publisher.number = 1
            publisher.publish({"type": "BlockMoved"}, stored(P))
            await found.holds(P, a=8)
            status = found.one()
            assert status["errors"] == {"malformed_frames": 1, "malformed_batch": 1}
            assert status["skipped"] == {"type:BlockMoved": 1}


async def test_lag_is_that_of_the_last_live_batch() -> None:
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:
            await found.following(publisher)
            publisher.publish(stored(P), ts=time.time() - 7)
            await found.holds(P, a=8)
            assert 7 <= found.one()["lag_s"] < 30


async def test_large_batches_do_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of fifty pieces is taken over in fifty turns of the loop."""
    turns = 0
    run = Subscriber._run

    def counted(self: Subscriber) -> None:
        nonlocal turns
        turns += 1
        run(self)

    monkeypatch.setattr(subscriber, "SLICE_S", 0.0)
    monkeypatch.setattr(subscriber, "TICK_S", 60.0)
    with Publisher() as publisher:
        async with following(Worker(publisher).target()) as found:
            await found.following(publisher)
            monkeypatch.setattr(Subscriber, "_run", counted)
            long = list(range(64 * 50 * 2))
            publisher.publish(stored(long))
            await found.holds(long, a=len(long))
            assert turns >= 50


async def test_a_flood_of_replayed_batches() -> None:
    """More than a ROUTER's queue takes at once."""
    with Publisher() as publisher:
        prompts = [[n, n + 1] for n in range(5000)]
        for prompt in prompts:
            publisher.publish(stored(prompt))
        async with following(Worker(publisher).target()) as found:
            await until(lambda: found.status and found.status[0].get("last") == 4999, "all")
            await until(lambda: found.one()["blocks"] == 5000, "applied")
            assert found.one()["partial"] is False


async def test_socket_in_a_folder_with_a_long_path_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the console's workers have it: bound by its bare name where the worker starts."""
    folder = tmp_path / ("a" * 60) / ("b" * 60)
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with zmq.Context() as context, context.socket(zmq.PUB) as publisher:
        publisher.bind("ipc://kv-events.sock")
        monkeypatch.chdir("/")
        target = Worker().target(events=(f"ipc://{folder}/kv-events.sock",))
        async with following(target) as found:
            await found.following()
            before = len(list(Path("/proc/self/fd").iterdir()))
        assert len(list(Path("/proc/self/fd").iterdir())) < before


async def test_socket_in_a_missing_folder_is_rejected_with_the_reason(tmp_path: Path) -> None:
    target = Worker().target(events=(f"ipc://{tmp_path}/{'x' * 120}/kv.sock",))
    async with following(target) as found:
        await until(lambda: found.one().get("reason") == "endpoint_unusable", "refused")
