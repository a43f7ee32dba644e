"""Live changes: configuration, and workers added, removed, drained, lost and recovered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from routing.engine.server import RouterServer
from tests.routing.engine.harness import (
    Client,
    admin,
    ask,
    chat,
    metric,
    post,
    router,
    until,
    workers,
)
from tests.support.fake_worker import Conversation, FakeWorker, event

RELOADS = "emberline_router_config_reloads_total"


def rewrite(path: Path, server: RouterServer, **changes: Any) -> None:
    """Change the file as the console does, and let the router look."""
    data = json.loads(path.read_text())
    data.update(changes)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(data))
    new.replace(path)
    server.reload(False)


async def test_stream_survives_every_change(tmp_path: Path) -> None:
    """Strategy, keys, limits, even its own worker's removal: the stream goes on to its end."""
    step = asyncio.Event()

    async def stream(talk: Conversation) -> None:
        await talk.stream_head()
        for index in range(5):
            await talk.chunk(event(f"part{index}"))
            await step.wait()
            step.clear()
        await talk.stream_end()

    path = tmp_path / "r.json"
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, path=path) as server:
            one.script = stream
            async with await Client.to(server.listen) as client:
                await client.send(post(chat("x", stream=True)))
                await client.head()
                worker = server.router.table.workers["w0"]
                changes: list[dict[str, Any]] = [
                    {"strategy": "session"},
                    {"workers": [{**workers(one)[0], "draining": True}]},
                    {"workers": [{"id": "w1", "url": two.url}]},
                    {"limits": {"body_bytes": 1024}, "retry": {"attempts": 1}},
                    {"prefix_block_bytes": 64, "strategy": "prefixaware"},
                ]
                for index, change in enumerate(changes):
                    async with asyncio.timeout(60):
                        data = await client.reader.readuntil(b"\n\n\r\n")
                    assert event(f"part{index}") in data
                    rewrite(path, server, **change)
                    step.set()
                async with asyncio.timeout(60):
                    assert await client.reader.readexactly(5) == b"0\r\n\r\n"
                assert worker.gone
                assert (worker.in_flight, worker.load) == (0, 0)
                await until(lambda: server.router.table.eligible)
                await client.send(post(chat("next")))
                assert (await client.response()).headers["x-emberline-worker"] == "w1"
            assert await metric(server, RELOADS, result="ok") == 5


async def test_invalid_file_keeps_the_last_valid_one(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with FakeWorker() as one, router(one, path=path, strategy="roundrobin") as server:
        good = path.read_text()
        for bad in (
            '{"listen": ',
            good.replace("roundrobin", "fastest"),
            good.replace(one.url, "ftp://x"),
            "",
        ):
            new = path.with_suffix(".new")
            new.write_text(bad)
            new.replace(path)
            server.reload(False)
            assert (await ask(server, post(chat("x")))).status == 200
            assert (await admin(server, "/config")).json["refused"]
        assert server.router.policy.name == "roundrobin"
        assert await metric(server, RELOADS, result="refused") == 4
        path.write_text(good)
        server.reload(False)
        assert (await admin(server, "/config")).json["refused"] == ""


async def test_file_is_watched_without_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, path=path) as server:
            data = json.loads(path.read_text())
            data["workers"] = workers(one, two)
            new = path.with_suffix(".new")
            new.write_text(json.dumps(data))
            new.replace(path)
            await until(lambda: len(server.router.table.eligible) == 2, "the change is seen")


async def test_strategy_changes_live(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, two, path=path) as server:
            for _ in range(4):
                await ask(server, post(chat("same " * 200)))
            assert sorted([len(one.requests), len(two.requests)]) == [0, 4]
            rewrite(path, server, strategy="roundrobin")
            for _ in range(4):
                await ask(server, post(chat("same " * 200)))
            assert sorted([len(one.requests), len(two.requests)]) == [2, 6]
            name = "emberline_router_routing_decisions_total"
            assert await metric(server, name, strategy="roundrobin") == 4
            assert await metric(server, name, strategy="prefixaware") == 4


async def test_prefix_memory_survives_unrelated_changes(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, path=path) as server:
            await ask(server, post(chat("same " * 200)))
            before = server.router.policy.sizes()
            assert before["w0"] > 0
            rewrite(path, server, workers=workers(one, two), retry={"attempts": 3})
            assert server.router.policy.sizes() == before
            rewrite(path, server, prefix_block_bytes=64)
            assert server.router.policy.sizes() == {}


async def test_added_and_removed_workers_leave_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with FakeWorker() as one, router(one, path=path) as server:
        for index in range(200):
            url = f"http://127.0.0.1:{1 + index}"
            rewrite(path, server, workers=[*workers(one), {"id": f"x{index}", "url": url}])
        rewrite(path, server, workers=workers(one))
        assert set(server.router.table.workers) == {"w0"}
        assert len(server._health._tasks) == 1
        text = (await admin(server, "/metrics")).body.decode()
        assert 'worker="x' not in text
        assert 'worker="w0"' in text


async def test_worker_at_a_new_address_is_a_new_worker(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, path=path) as server:
            await ask(server, post(chat("same " * 200)))
            rewrite(path, server, workers=[{"id": "w0", "url": two.url}])
            assert server.router.policy.sizes() == {}
            await until(lambda: server.router.table.eligible)
            assert (await ask(server, post(chat("x")))).headers["x-emberline-worker"] == "w0"
            assert len(two.requests) == 1


async def test_draining_worker_in_the_file_gets_nothing_new(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, two, path=path) as server:
            home = (await ask(server, post(chat("same " * 200)))).headers["x-emberline-worker"]
            listed = [{**item, "draining": item["id"] == home} for item in workers(one, two)]
            rewrite(path, server, workers=listed)
            for _ in range(3):
                answer = await ask(server, post(chat("same " * 200)))
                assert answer.headers["x-emberline-worker"] != home


async def test_unhealthy_worker_goes_down_and_healthy_one_up() -> None:
    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:
        table = server.router.table
        one.healthy = False
        await until(lambda: len(table.eligible) == 1)
        for index in range(3):
            answer = await ask(server, post(chat(f"{index}")))
            assert answer.headers["x-emberline-worker"] == "w1"
        assert "503" in table.workers["w0"].last_error
        one.healthy = True
        await until(lambda: len(table.eligible) == 2)


async def test_memory_is_dropped_for_lost_workers_and_kept_for_unhealthy_ones() -> None:
    """A process that is gone lost its cache; one that is only slow to answer has it still."""
    async with FakeWorker() as one, router(one) as server:
        await ask(server, post(chat("same " * 200)))
        table = server.router.table
        one.healthy = False
        await until(lambda: not table.eligible)
        assert server.router.policy.sizes()["w0"] > 0
        one.healthy = True
        await until(lambda: table.eligible)
        await one.stop()
        await until(lambda: not table.eligible)
        assert server.router.policy.sizes() == {}


async def test_match_on_a_down_worker_is_counted() -> None:
    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:
        home = (await ask(server, post(chat("same " * 200)))).headers["x-emberline-worker"]
        fake = one if home == "w0" else two
        fake.healthy = False
        await until(lambda: len(server.router.table.eligible) == 1)
        await ask(server, post(chat("same " * 200)))
        name = "emberline_router_routing_decisions_total"
        assert await metric(server, name, reason="fallback_unhealthy") == 1
