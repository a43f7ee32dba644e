"""Recording of traffic by a router."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dashboards.insight.traces.records import read_streams
from dashboards.insight.traces.trace import TraceRequest
from routing.engine.config import RecordingConfig
from routing.engine.observe.traffic import QUEUE_LIMIT, PieceBuffer, TrafficEncoder
from routing.engine.server import RouterServer
from tests.routing.engine.harness import admin, ask, chat, post, router, until
from tests.routing.engine.test_router_access import bearer, keys
from tests.support.fake_worker import FakeWorker

ON = {"recording": {"enabled": True}}
FOREVER = 1e12


async def collected(server: RouterServer, requests: int) -> list[TraceRequest]:
    """Collect as the console does until so many requests are there."""
    pieces: list[dict[str, Any]] = []

    def enough() -> bool:
        pieces[:] = server.router.recorder.traffic.collect("", 0)["pieces"]
        return sum(piece["requests"] for piece in pieces) >= requests

    await until(enough, "requests recorded")
    streams: dict[int, list[bytes]] = {}
    for piece in pieces:
        streams.setdefault(piece["stream"], []).append(base64.b64decode(piece["data"]))
    return list(read_streams(streams.values(), 0, FOREVER).requests)


@pytest.mark.parametrize("strategy", ["prefixaware", "roundrobin", "kvaware"])
async def test_requests_are_recorded_under_every_strategy(strategy: str) -> None:
    async with FakeWorker() as worker, router(worker, strategy=strategy, **ON) as server:
        text = "words of a secret " * 60
        for end in ("one", "two"):
            body = post(chat(text + end), x_session_id="alice")
            assert (await ask(server, body)).status == 200
        await ask(server, b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        one, two = await collected(server, 2)
        assert one.worker == two.worker != ""
        assert one.session == two.session != ""
        assert one.status == 200
        assert one.duration_s is not None
        assert one.prompt_tokens > 0
        shared = sum(a == b for a, b in zip(one.blocks, two.blocks, strict=False))
        assert 0 < shared < len(one.blocks)
        state = (await admin(server, "/recording")).json
        data = b"".join(gzip.decompress(base64.b64decode(p["data"])) for p in state["pieces"])
        assert b"secret" not in data
        assert b"alice" not in data


async def test_recording_is_off_by_default_and_switched_live() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        await ask(server, post(chat("x" * 900)))
        state = (await admin(server, "/recording")).json
        assert (state["recording"], state["pieces"], state["lost"]) == (False, [], 0)
        config = server.router.config
        server.router.reconfigure(msgspec.structs.replace(config, recording=RecordingConfig(True)))
        await ask(server, post(chat("y" * 900)))
        server.router.reconfigure(config)
        await ask(server, post(chat("z" * 900)))
        assert len(await collected(server, 1)) == 1  # also after it was switched off
        assert (await admin(server, "/recording")).json["recording"] is False


async def test_keys_groups_and_isolation_are_recorded(tmp_path: Path) -> None:
    file = Path(keys(tmp_path, a=False, b=False))
    entries = json.loads(file.read_text())["keys"]
    entries[0]["group"] = "g"
    file.write_text(json.dumps({"keys": entries}))
    more = {**ON, "api_keys_file": str(file), "cache_isolation": "shared"}
    async with FakeWorker() as worker, router(worker, **more) as server:
        digest = server.router.identifier.digest
        for key in "ab":
            wire = post(chat("x" * 900), authorization=bearer(key))
            assert (await ask(server, wire)).status == 200
        one, two = await collected(server, 2)
        assert (one.key, one.key_group) == (digest(b"key:a"), digest(b"group:g"))
        assert (two.key, two.key_group) == (digest(b"key:b"), "")
        assert one.blocks[:3] == two.blocks[:3]
        # Requests under another isolation are in pieces of their own.
        server.router.reconfigure(
            msgspec.structs.replace(server.router.config, cache_isolation="key")
        )
        wire = post(chat("x" * 900), authorization=bearer("a"))
        assert (await ask(server, wire)).status == 200
        await collected(server, 3)
        pieces = server.router.recorder.traffic.collect("", 0)["pieces"]
        heads = [json.loads(gzip.decompress(base64.b64decode(p["data"])).split(b"\n")[0])
                 for p in pieces]  # fmt: skip
        assert {head["isolation"] for head in heads} == {"shared", "key"}


async def test_pieces_stay_until_they_are_confirmed() -> None:
    async with FakeWorker() as worker, router(worker, **ON) as server:
        await ask(server, post(chat("x" * 900)))
        await collected(server, 1)
        instance = server.router.instance

        async def kept(query: str) -> list[int]:
            found = (await admin(server, f"/recording?{query}")).json["pieces"]
            return [piece["number"] for piece in found]

        assert await kept("") == [1]
        assert await kept("instance=earlier&after=1") == [1]
        assert await kept(f"instance={instance}&after=1") == []
        assert await kept("") == []
        assert (await admin(server, "/recording?after=x")).status == 400


def test_a_full_queue_counts_lost_requests() -> None:
    encoder = TrafficEncoder(PieceBuffer(), RecordingConfig(True), 256, lambda _: "0" * 16)
    encoder.stop()
    assert encoder.join(60)
    for _ in range(QUEUE_LIMIT + 7):
        encoder.add((None, ()))
    assert encoder.uncounted() == 7
