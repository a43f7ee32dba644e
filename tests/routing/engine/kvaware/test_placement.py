"""kvaware in a running router: workers without events, and strategy changes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.routing.engine.harness import admin, ask, becomes, chat, metric, post, router, until
from tests.support.fake_worker import FakeWorker

FALLBACKS = "emberline_router_kv_fallbacks_total"


async def index(server) -> dict:
    return (await admin(server, "/index")).json


async def decided(server) -> dict:
    return (await admin(server, "/decisions?limit=1")).json["decisions"][0]


async def test_workers_without_events_are_shown_and_their_requests_counted() -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, two, strategy="kvaware") as server:
            assert await metric(server, FALLBACKS, reason="no_events") == 0

            def refused() -> bool:
                listening = server._kvaware.listening
                assert listening is not None
                return all(s.get("reason") != "undiscovered" for s in listening.subscriber.status())

            await until(refused, "both were asked")
            sources = (await index(server))["kv"]["sources"]
            assert {source["state"] for source in sources} == {"none"}
            assert all(source["reason"] and source["message"] for source in sources)
            for _ in range(2):
                assert (await ask(server, post(chat("tell me a long story " * 50)))).status == 200
            await becomes(server, 2, FALLBACKS, reason="no_events")
            seen = await decided(server)
            assert (seen["strategy"], seen["fallback"]) == ("kvaware", "no_events")
            assert seen["reason"] == "prefix_hit"


async def test_requests_without_any_worker_are_no_fallbacks() -> None:
    async with router(strategy="kvaware") as server:
        assert (await ask(server, post(chat("tell me a story")))).status == 503
        assert await metric(server, FALLBACKS) == 0


async def test_strategy_changes_under_load(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    async with FakeWorker() as worker, router(worker, path=path) as server:
        data = json.loads(path.read_text())

        async def switch(strategy: str) -> None:
            path.write_text(json.dumps({**data, "strategy": strategy}))
            server.reload(True)
            assert (await ask(server, post(chat("hi")))).status == 200
            assert (await decided(server))["strategy"] == strategy

        assert server._kvaware.listening is None
        for _ in range(2):
            await switch("kvaware")
            listening = server._kvaware.listening
            assert listening is not None
            assert "kv" in await index(server)
            await switch("prefixaware")
            assert server._kvaware.listening is None
            assert "kv" not in await index(server)
            await until(listening._mode.done, "the old one ended")


async def test_explain_names_the_source_of_its_ranking() -> None:
    async with FakeWorker() as worker, router(worker, strategy="kvaware") as server:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi " * 300}]}
        answer = await admin(server, "/explain", "POST", body=json.dumps(body).encode())
        assert answer.json["candidates"][0]["matched"] == {"prefix": 0}
