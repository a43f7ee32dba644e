"""Progress of a prompt in a running router before its response starts."""

from __future__ import annotations

import asyncio

from routing.engine.server import RouterServer
from tests.routing.engine.harness import ask, post, router, until
from tests.routing.engine.kv.builders import stored
from tests.routing.engine.kv.event_worker import BLOCK, KvEventWorker
from tests.support.fake_worker import Conversation, event

SHORT = list(range(1, 2 * BLOCK + 2))
LONG = list(range(1000, 1000 + 6 * BLOCK + 1))


class Slow(KvEventWorker):
    """Computes half of a long prompt, publishes it, and continues on release; with `talks`
    it has begun to answer, with `dies` it never will."""

    def __init__(self) -> None:
        super().__init__()
        self.on = asyncio.Event()
        self.dies = self.talks = False

    async def _complete(self, talk: Conversation) -> None:
        if talk.request.json["prompt"] == LONG:
            if self.talks:
                await talk.stream_head()
                await talk.chunk(event("x"))
            self.publisher.publish(stored(LONG, 0, 3, block=BLOCK))
            await self.on.wait()
            if self.talks:
                await talk.stream_end()
                return
            if self.dies:
                talk.cut()
                return
        await super()._complete(talk)


async def ready(server: RouterServer) -> None:
    """Its events are followed, and the size of its blocks is known."""
    listening = server._kvaware.listening
    assert listening is not None
    await until(lambda: listening.routing.telling and listening.routing.tokens, "in use")
    assert (await complete(server, SHORT)) == 200
    await until(lambda: listening.subscriber.index.block_sizes(), "the size of its blocks")


async def complete(server: RouterServer, prompt: list[int]) -> int:
    body = {"model": "m", "prompt": prompt, "max_tokens": 1}
    return (await ask(server, post(body, "/v1/completions"))).status


async def test_computed_part_of_a_prompt_is_no_load() -> None:
    kv = {"probe_interval_s": 0, "wait_s": 60}
    async with Slow() as worker, router(worker, strategy="kvaware", kv=kv) as server:
        await ready(server)
        load = server.router.table.workers["w0"]
        progress = server._kvaware.listening.routing.progress
        requested = asyncio.create_task(complete(server, LONG))
        await until(lambda: load.backlog == 3 * BLOCK + 1, "half of it is done")
        worker.on.set()
        assert await requested == 200
        await until(lambda: not load.in_flight, "it ended")
        assert (load.backlog, load.load, len(progress)) == (0, 0, 0)


async def test_retried_prompt_leaves_nothing_at_the_first_worker() -> None:
    kv = {"probe_interval_s": 0, "wait_s": 60}
    async with Slow() as one, Slow() as two, router(one, two, strategy="kvaware", kv=kv) as server:
        await ready(server)
        listening = server._kvaware.listening
        assert listening is not None
        await until(lambda: all(map(listening.subscriber.ranks, ("w0", "w1"))), "followed")
        loads = [server.router.table.workers[name] for name in ("w0", "w1")]
        requested = asyncio.create_task(complete(server, LONG))
        await until(lambda: sum(load.backlog for load in loads) == 3 * BLOCK + 1, "under way")
        first, second = (one, two) if loads[0].in_flight else (two, one)
        first.dies = True
        first.on.set()
        await until(lambda: len(second.sent()) and len(listening.routing.progress) == 1, "moved")
        second.on.set()
        assert await requested == 200
        await until(lambda: not any(load.in_flight for load in loads), "it ended")
        assert [load.backlog for load in loads] == [0, 0]
        assert len(listening.routing.progress) == 0


async def test_finished_and_failed_requests_are_not_tracked() -> None:
    kv = {"probe_interval_s": 0, "wait_s": 60}
    async with Slow() as worker, router(worker, strategy="kvaware", kv=kv) as server:
        await ready(server)
        load = server.router.table.workers["w0"]
        progress = server._kvaware.listening.routing.progress
        worker.talks = True
        requested = asyncio.create_task(complete(server, LONG))
        await until(lambda: load.decoding, "it answers")
        assert len(progress) == 0
        worker.on.set()
        assert await requested == 200
        worker.talks, worker.dies = False, True
        assert await complete(server, LONG) == 502
        await until(lambda: not load.in_flight, "it failed")
        assert (load.backlog, len(progress)) == (0, 0)
