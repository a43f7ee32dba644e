"""Limits that several routers share through a real Valkey."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from routing.engine.access.callers import Bucket
from routing.engine.peers.connection import StoreConnection
from routing.engine.server import RouterServer
from tests.routing.engine.harness import Client, ask, chat, metric, post, until
from tests.routing.engine.peers.test_service import (
    PASSWORD,
    exchanging,
    folder,
    never,
    peers_of,
    valkey,
)
from tests.routing.engine.test_router_access import bearer, keys
from tests.support.cachenode import Valkey
from tests.support.fake_worker import FakeWorker
from tests.support.ports import free_port

__all__ = ["folder", "valkey"]


def test_bucket_settles_what_others_took():
    bucket = Bucket(60)
    for _ in range(10):
        bucket.take(1, 100.0)
    sent = bucket.unsent_s
    bucket.take(5, 100.0)  # meanwhile
    bucket.settle(30.0, sent, 100.0, 1)  # others took 20
    assert bucket.level(100.0) == pytest.approx(25)
    assert bucket.unsent == 5
    bucket.settle(35.0, bucket.unsent_s, 100.0, 1)
    assert (bucket.unsent, bucket.level(100.0)) == (0, pytest.approx(25))


def test_routers_divide_what_is_left_until_the_next_settlement():
    bucket = Bucket(800)
    bucket.settle(0.0, 0.0, 100.0, 4)
    for _ in range(600):  # all but a quarter
        assert bucket.wait_s(1, 100.0) <= 0
        bucket.take(1, 100.0)
    assert bucket.wait_s(1, 100.0) > 0
    bucket.settle(54.0, bucket.unsent_s, 100.0, 4)  # 80 are left
    for _ in range(20):
        assert bucket.wait_s(1, 100.0) <= 0
        bucket.take(1, 100.0)
    assert bucket.wait_s(1, 100.0) > 0


def test_bucket_without_a_store_holds_its_share():
    bucket = Bucket(60)
    bucket.divide(4, 100.0)
    assert bucket.level(100.0) == 15
    for _ in range(15):
        assert bucket.wait_s(1, 100.0) <= 0
        bucket.take(1, 100.0)
    assert bucket.wait_s(1, 100.0) == pytest.approx(4.0)
    bucket.divide(1, 1000.0)
    assert (bucket.unsent, bucket.level(1000.0)) == (0, 60)  # refilled: not charged again


def buckets(server: RouterServer) -> list[Bucket]:
    return [bucket for _, bucket in server.router.admission.buckets()]


async def test_rate_of_four_routers_is_that_of_one(valkey, folder):
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(FakeWorker())
        name = uuid4().hex  # the store keeps the level
        routers = [
            await stack.enter_async_context(
                exchanging(
                    *(valkey, folder, worker), endpoint=name, admission={"requests_per_minute": 60}
                )
            )
            for _ in range(4)
        ]
        await until(lambda: all(peers_of(one) == 3 for one in routers), "all connected")
        loop = asyncio.get_running_loop()
        began = loop.time()
        statuses = []
        for _ in range(40):
            found = await asyncio.gather(*(ask(one, post(chat("hello"))) for one in routers))
            statuses += [answer.status for answer in found]
            await until(
                lambda: not any(bucket.unsent for one in routers for bucket in buckets(one)),
                "settled",
            )
        passed = statuses.count(200)
        refilled = loop.time() - began  # one a second
        assert set(statuses) == {200, 429}
        # At most what the others admit before a router has read the level: some two each.
        assert 60 <= passed <= 60 + refilled + 8


@pytest.mark.parametrize(
    "stored", ["inf", "-inf", "nan", "1e308", "-1e308", "0x7p9999", "many", "", ["a list"]]
)
async def test_level_that_cannot_be_is_none(valkey, folder, stored):
    async with (
        FakeWorker() as worker,
        exchanging(
            *(valkey, folder, worker), endpoint=uuid4().hex, admission={"requests_per_minute": 60}
        ) as server,
        Redis.from_url(valkey.url, password=PASSWORD) as store,
    ):
        await until(lambda: server._exchange.link.up, "connected")
        connection = server._exchange.link._connection
        (key,) = [
            server._exchange._limits._place + name for name, _ in server.router.admission.buckets()
        ]
        await (store.rpush(key, *stored) if type(stored) is list else store.set(key, stored))
        (bucket,) = buckets(server)
        for _ in range(2):
            assert (await ask(server, post(chat("hello")))).status == 200
            await until(lambda: not bucket.unsent, "settled")
        assert 50 < bucket.level(perf_counter()) <= 59
        assert 1 < float(await store.get(key)) - time.time() < 10
        assert server._exchange.link._connection is connection
        assert await metric(server, "emberline_router_state_store_up") == 1


@pytest.mark.parametrize("reply", [b"5", [b"nan"], [b"1e9"], [b"x"], [], None])
async def test_implausible_reply_ends_the_connection_and_nothing_else(
    valkey, folder, reply, monkeypatch
):
    async with (
        FakeWorker() as worker,
        exchanging(
            *(valkey, folder, worker), endpoint=uuid4().hex, admission={"requests_per_minute": 60}
        ) as server,
    ):
        await until(lambda: server._exchange.link.up, "connected")
        command = StoreConnection.command

        def wrong(self, *parts):
            if parts[0] != "EVALSHA":
                return command(self, *parts)
            future = asyncio.get_running_loop().create_future()
            future.set_result(reply)
            return future

        with monkeypatch.context() as patch:
            patch.setattr(StoreConnection, "command", wrong)
            await until(lambda: server._exchange.away, "not connected")
            assert (await ask(server, post(chat("hello")))).status == 200
        await until(lambda: not server._exchange.away, "connected again")
        (bucket,) = buckets(server)
        assert 50 < bucket.level(perf_counter()) <= 60


async def test_requests_at_a_time_are_those_of_one_router_and_shared_fairly(valkey, folder):
    async with (
        FakeWorker() as worker,
        exchanging(valkey, folder, worker, endpoint="slots", admission={"max_in_flight": 2}) as one,
        exchanging(valkey, folder, worker, endpoint="slots", admission={"max_in_flight": 2}) as two,
        AsyncExitStack() as stack,
    ):
        await until(lambda: peers_of(one) and peers_of(two), "both connected")
        worker.script = never
        first = [await stack.enter_async_context(await Client.to(one.listen)) for _ in range(4)]
        for client in first:
            await client.send(post(chat("hello")))
        await until(lambda: one.router.admission.in_flight == 2, "slots used")
        await until(lambda: two.router.table.workers["w0"].in_flight == 2, "known to the other")
        waiting = await stack.enter_async_context(await Client.to(two.listen))
        await waiting.send(post(chat("hello")))
        await until(lambda: two.router.admission.depth == 1, "queued")
        await until(lambda: one.router.admission._here == 1, "room to leave")
        first[0].writer.transport.abort()
        await until(lambda: two.router.admission.in_flight == 1, "the freed slot")
        assert one.router.admission.in_flight == 1


async def test_limits_are_divided_while_the_store_is_away(folder):
    class Nothing:
        url = f"redis://127.0.0.1:{free_port()}/0"

    async with (
        FakeWorker() as worker,
        exchanging(
            *(Nothing, folder, worker), endpoint="alone", admission={"requests_per_minute": 10}
        ) as one,
    ):
        statuses = [(await ask(one, post(chat("hello")))).status for _ in range(8)]
        assert statuses.count(200) == 5


def budget_file(folder: Path, tokens: int) -> str:
    file = Path(keys(folder, a=False))
    (entry,) = json.loads(file.read_text())["keys"]
    file.write_text(json.dumps({"keys": [{**entry, "budget_tokens": tokens}]}))
    return str(file)


def left(server: RouterServer) -> int:
    use = server.router.recorder.use
    return use._unused(use.of("a"))[0]


def used(server: RouterServer) -> int:
    return server.router.recorder.use.of("a").used


async def test_budget_is_used_up_together_and_divided_while_the_store_is_away(folder, tmp_path):
    store = Valkey(folder, password=PASSWORD)
    file = budget_file(tmp_path, 1_000_000)
    hello = post(chat("hello", max_tokens=10), authorization=bearer("a"))
    async with (
        FakeWorker() as worker,
        exchanging(store, folder, worker, endpoint="budget", api_keys_file=file) as one,
        exchanging(store, folder, worker, endpoint="budget", api_keys_file=file) as two,
    ):
        try:
            await until(lambda: peers_of(one) and peers_of(two), "both connected")
            for _ in range(3):
                assert (await ask(one, hello)).status == 200
            assert (await ask(two, hello)).status == 200
            await until(
                lambda: left(one) == left(two) == 1_000_000 - used(one) - used(two), "equal budgets"
            )
            # The console counted both and reports what is left: less than one of them used.
            most = min(used(one), used(two))
            reported = {"left": most, "counted": {s.router.instance: used(s) for s in (one, two)}}
            for server in (one, two):
                share = {"left": most // 2, "counted": used(server), "resets_at": time.time() + 900}
                server.router.recorder.use.apply_budgets(
                    server.router.instance, {"a": share | {"all": reported}}
                )
            assert (await ask(one, hello)).status == 200
            await until(lambda: left(two) == left(one) <= 0, "known to the other")
            refused = await ask(two, hello)
            assert (refused.status, refused.code) == (429, "insufficient_quota")
        finally:
            store.stop()
        await until(lambda: two._exchange.away and not peers_of(two), "alone")
        alone = await metric(two, "emberline_router_budget_checks_alone_total")
        reported = {"left": 7, "counted": used(two), "resets_at": time.time() + 900}
        two.router.recorder.use.apply_budgets(two.router.instance, {"a": reported})
        assert left(two) == 7
        assert (await ask(two, hello)).status == 200
        assert await metric(two, "emberline_router_budget_checks_alone_total") == alone + 1
