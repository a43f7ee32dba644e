"""Routers that exchange state through a real Valkey."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from routing.engine.misses import peer_prompts
from routing.engine.observe.metrics import is_compiled
from routing.engine.server import RouterServer
from tests.routing.engine.harness import (
    Client,
    admin,
    ask,
    becomes,
    chat,
    metric,
    post,
    router,
    until,
)
from tests.support.cached_worker import CachedWorker
from tests.support.cachenode import Valkey
from tests.support.fake_worker import Conversation, FakeWorker

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found: Path = tmp_path_factory.mktemp("store")
    (found / "password").write_text(PASSWORD)
    (found / "hash.key").write_text("h" * 32)
    return found


@pytest.fixture(scope="module")
def valkey(folder: Path) -> Iterator[Valkey]:
    store = Valkey(folder, password=PASSWORD)
    yield store
    store.stop()


@asynccontextmanager
async def exchanging(
    valkey: Valkey, folder: Path, *fakes: FakeWorker, **settings: Any
) -> AsyncIterator[RouterServer]:
    store = {"url": valkey.url, "password_file": str(folder / "password"), "routers": 2}
    more = {"state_store": store, "hash_key_file": str(folder / "hash.key"), **settings}
    async with router(*fakes, **more) as server:
        yield server


def peers_of(server: RouterServer) -> int:
    return len(server._exchange.view.peers)


async def never(talk: Conversation) -> None:
    await talk.gone.wait()


async def test_evicted_prompt_of_a_peer_is_not_first_seen(valkey, folder):
    async with (
        CachedWorker(blocks=40) as worker,
        exchanging(valkey, folder, worker, endpoint="misses") as one,
        exchanging(valkey, folder, worker, endpoint="misses") as two,
    ):
        await until(lambda: peers_of(one) and peers_of(two), "both connected")

        async def complete(server: RouterServer, prompt: str) -> dict[str, int]:
            body = {"model": "m", "prompt": prompt, "max_tokens": 1}
            answer = await ask(server, post(body, "/v1/completions"))
            number = answer.headers["x-emberline-decision"]
            return dict((await admin(server, f"/decisions/{number}")).json["misses"]["causes"])

        prompt = "a prompt of the peer " * 100
        await complete(one, prompt)
        await until(lambda: len(two.router.misses.history), "the peer's prompt")
        await complete(one, "another one " * 250)
        worker.cache.clear()
        found = await complete(two, prompt)
        assert max(found, key=found.__getitem__) == "evicted_unknown"


async def test_answer_time_is_learned_by_both_routers(valkey, folder):
    async with (
        FakeWorker() as worker,
        exchanging(valkey, folder, worker, endpoint="pace") as one,
        exchanging(valkey, folder, worker, endpoint="pace") as two,
    ):
        await until(lambda: peers_of(one) and peers_of(two), "both connected")
        await ask(one, post(chat("hi", stream=True)))
        await until(lambda: two.router.pace._samples, "the peer's sample")
        assert (one.router.pace._samples, two.router.pace._samples) == (1, 1)


async def test_prompt_that_the_later_router_knew_elsewhere_is_first_seen(
    valkey, folder, monkeypatch
):
    monkeypatch.setattr(peer_prompts, "DOUBLED_S", 60.0)
    async with (
        CachedWorker() as w0,
        CachedWorker() as w1,
        exchanging(valkey, folder, w0, w1, endpoint="known") as one,
        exchanging(valkey, folder, w0, w1, endpoint="known") as two,
    ):
        await until(lambda: peers_of(one) and peers_of(two), "both connected")
        first, second = sorted((one, two), key=lambda server: server._exchange.router_id)

        async def complete(server: RouterServer, pin: str) -> str:
            body = {"model": "m", "prompt": "a prompt of both " * 100, "max_tokens": 1}
            answer = await ask(server, post(body, "/v1/completions", x_emberline_pin=pin))
            number = answer.headers["x-emberline-decision"]
            shown = (await admin(server, f"/decisions/{number}")).json["misses"]["causes"]
            return str(max(shown, key=shown.__getitem__))

        w0.held_back = asyncio.Event()
        earlier = asyncio.create_task(complete(first, "w0"))
        await until(lambda: second.router.misses.peers._sent, "the first placement")
        assert await complete(second, "w1") == "placed_pinned"
        await until(lambda: len(first.router.misses.history), "the second placement")
        w0.held_back.set()
        assert await earlier == "first_seen"


async def test_routers_share_load_and_placements(valkey, folder):
    async with (
        FakeWorker() as first,
        FakeWorker() as second,
        exchanging(valkey, folder, first, second, endpoint="shared") as one,
        exchanging(valkey, folder, first, second, endpoint="shared") as two,
    ):
        await until(lambda: peers_of(one) and peers_of(two), "both connected")
        first.script = second.script = never
        async with await Client.to(one.listen) as client:
            await client.send(post(chat("a long shared prefix " * 100)))
            chosen = await until(
                lambda: next((w for w in two.router.table.workers.values() if w.in_flight), None),
                "load of the peer",
            )
            assert chosen.own_in_flight == 0
            assert chosen.load > 0
            # Placements follow in a message of their own.
            await until(
                lambda: two.router.policy.sizes() == one.router.policy.sizes() != {},
                "placements of the peer",
            )
        await until(lambda: chosen.in_flight == 0, "load of the ended request removed")
        first.script = second.script = None
        two.router.policy.set_share(chosen.id, 0.93)
        found = await ask(two, post(chat("a long shared prefix " * 100)))
        assert found.headers["x-emberline-worker"] == chosen.id
        await until(lambda: one.router.policy.share(chosen.id) == 0.93, "share of the cache")
        assert await metric(two, "emberline_router_peers") == 1
        assert (await admin(two, "/peers")).json["exchange"]["connected"]
        assert PASSWORD not in (await admin(two, "/config")).body.decode()


async def test_endpoints_do_not_hear_each_other(valkey, folder):
    async with (
        FakeWorker() as worker,
        exchanging(valkey, folder, worker, endpoint="left") as one,
        exchanging(valkey, folder, worker, endpoint="right") as two,
        exchanging(valkey, folder, worker, endpoint="right") as three,
    ):
        await until(lambda: one._exchange.link.up and peers_of(two) and peers_of(three))
        assert peers_of(one) == 0
        assert await metric(one, "emberline_router_peer_messages_total") == 0


async def test_new_router_receives_the_memory_of_the_oldest(valkey, folder):
    async with FakeWorker() as worker, exchanging(valkey, folder, worker, endpoint="warm") as one:
        one._exchange._began -= 60
        for number in range(5):
            await ask(one, post(chat(f"{number} prefix " * 100)))
        async with exchanging(valkey, folder, worker, endpoint="warm") as two:
            await until(lambda: two.router.policy.sizes() == one.router.policy.sizes(), "warm")


async def test_router_goes_on_alone_and_returns(folder):
    store = Valkey(folder, password=PASSWORD)
    async with (
        FakeWorker() as worker,
        exchanging(store, folder, worker, endpoint="away") as one,
        exchanging(store, folder, worker, endpoint="away") as two,
    ):
        await until(lambda: peers_of(one) and peers_of(two), "both connected")
        store.stop()
        await until(lambda: one._exchange.away and not peers_of(one), "alone")
        assert (await ask(one, post(chat("while away " * 100)))).status == 200
        await becomes(one, 0, "emberline_router_state_store_up")
        assert await metric(one, "emberline_router_state_store_failures_total") >= 1
        back = await asyncio.to_thread(Valkey, folder, password=PASSWORD, port=store.port)
        try:
            await until(lambda: peers_of(one) and peers_of(two), "reconnected")
            await until(lambda: two.router.policy.sizes() == one.router.policy.sizes(), "caught up")
        finally:
            back.stop()


async def test_connection_is_kept_while_the_store_is_slow(valkey, folder):
    async with (
        FakeWorker() as worker,
        exchanging(valkey, folder, worker, endpoint="slow") as one,
        Redis.from_url(valkey.url, password=PASSWORD) as store,
    ):
        await until(lambda: one._exchange.link.up, "connected")
        connection = one._exchange.link._connection
        await store.execute_command("CLIENT", "PAUSE", 2500, "ALL")
        await until(lambda: one._exchange.away, "alone")
        assert not one._exchange.show()["connected"]
        assert (await ask(one, post(chat("meanwhile")))).status == 200
        await until(lambda: not one._exchange.away, "connected")
        assert one._exchange.link._connection is connection
        assert (
            await metric(one, "emberline_router_state_store_failures_total", reason="timeout") == 1
        )


@pytest.mark.skipif(is_compiled(), reason="the compiled router has native classes")
async def test_any_exception_leaves_the_exchange_connected_or_says_that_it_is_not(
    valkey, folder, monkeypatch
):
    async with (
        FakeWorker() as worker,
        exchanging(valkey, folder, worker, endpoint="broken") as one,
        exchanging(valkey, folder, worker, endpoint="broken") as two,
    ):
        await until(lambda: peers_of(one) and peers_of(two), "both connected")
        connection = one._exchange.link._connection

        def failing(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(one._exchange.view, "apply", failing)
            await until(lambda: one._exchange.show()["messages"]["invalid"] > 1, "counted")
            assert one._exchange.link._connection is connection
        with monkeypatch.context() as patch:
            patch.setattr(one._exchange, "_batch", failing)
            await until(lambda: one._exchange.away, "not connected")
            assert "ZeroDivisionError" in one._exchange.away
            await becomes(one, 0, "emberline_router_state_store_up")
        await until(lambda: not one._exchange.away and peers_of(one), "connected again")


async def test_hostile_message_is_dropped_and_counted(valkey, folder):
    async with FakeWorker() as worker, exchanging(valkey, folder, worker, endpoint="evil") as one:
        await until(lambda: one._exchange.link.up, "connected")
        async with Redis(port=valkey.port, password=PASSWORD) as client:
            await client.publish("emberline:default/evil:routers", b"x" * 50)
        await becomes(one, 1, "emberline_router_peer_messages_total", result="not_authentic")
