"""A canary in running routers: assignment, records, statistics, start and end without a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from routing.engine.canary.run import Canary, prompt_head
from routing.engine.config import CanaryConfig
from routing.engine.server import RouterServer
from tests.routing.engine.harness import admin, ask, chat, post, router, until
from tests.routing.engine.test_server_changes import rewrite
from tests.support.fake_worker import Conversation, FakeWorker

CANARY = {"id": "c1", "strategy": "session", "share": 0.5, "settle_s": 0}


def turn(number: int, more: str = "", **fields: Any) -> dict[str, Any]:
    body = chat(f"conversation {number}", **fields)
    body["messages"][:0] = [{"role": "system", "content": "Be brief. " * 50}]
    if more:
        body["messages"] += [{"role": "assistant", "content": "Yes."}]
        body["messages"] += [{"role": "user", "content": more}]
    return body


async def arms(server: RouterServer) -> list[str]:
    found = (await admin(server, "/decisions?limit=100")).json["decisions"]
    return [one["arm"] for one in reversed(found)]


def test_share_of_the_sessions_and_agreement() -> None:
    config = CanaryConfig("c1", "session", 0.2)
    one, two = Canary(config, "prefixaware", b"key"), Canary(config, "prefixaware", b"key")
    assigned = [one.assign("k", b"%d" % number)[0] for number in range(5000)]
    assert assigned == [two.assign("k", b"%d" % number)[0] for number in range(5000)]
    assert 0.18 < sum(assigned) / 5000 < 0.22
    for other in (
        Canary(config, "prefixaware", b"other"),
        Canary(CanaryConfig("c2", "session", 0.2), "prefixaware", b"key"),
    ):
        differing = [other.assign("k", b"%d" % number)[0] for number in range(5000)]
        assert 0.05 < sum(a and b for a, b in zip(assigned, differing, strict=True)) / 1000 < 0.35
    assert one.assign("a", b"1")[1] != one.assign("b", b"1")[1], "sessions of a key are its own"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (turn(1), turn(1, "more"), True),
        (turn(1), turn(2), False),
        ({"prompt": "a" * 2000}, {"prompt": "a" * 2000 + "b"}, True),
        ({"prompt": "a"}, {"prompt": "b"}, False),
        ({"prompt": [1, 2]}, {"prompt": [1, 3]}, False),
        ({"input": "a"}, {"input": "b"}, False),
        ({"input": [{"role": "user", "content": ["a"]}]}, {"input": ["a", None]}, False),
        ({"messages": [], "system": "x"}, {}, True),
        ({"messages": [{"role": "user", "content": 2**70}]}, {"messages": 3}, False),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, {"prompt": ["\ud800"]}, False),
    ],
)
def test_head_of_the_prompt(first: dict[str, Any], second: dict[str, Any], same: bool) -> None:
    assert (prompt_head(first) == prompt_head(second)) is same


async def test_turns_of_a_conversation_keep_their_arm_at_every_router(tmp_path: Path) -> None:
    key = tmp_path / "hash.key"
    key.write_text("k" * 32)
    settings = {"canary": CANARY, "hash_key_file": str(key)}
    async with FakeWorker() as worker:
        async with router(worker, **settings) as one, router(worker, **settings) as two:
            for number in range(12):
                for server, more in ((one, ""), (two, ""), (one, "and now?")):
                    assert (await ask(server, post(turn(number, more)))).status == 200
            found, others = await arms(one), await arms(two)
    assert set(others) == {"control", "candidate"}
    assert found[::2] == others
    assert found[1::2] == others


async def test_session_ids_decide_over_the_prompt() -> None:
    async with FakeWorker() as worker, router(worker, canary=CANARY) as server:
        for number in range(12):
            await ask(server, post(turn(number), x_session_id="one"))
        assert len(set(await arms(server))) == 1
        shown = (await admin(server, "/decisions?limit=1")).json["decisions"][0]
        expected = "session" if shown["arm"] == "candidate" else "prefixaware"
        assert shown["strategy"] == expected


async def test_statistics_per_arm_and_live_start_and_end(tmp_path: Path) -> None:
    async def answer(talk: Conversation) -> None:
        usage = {
            "prompt_tokens": 100,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 40},
        }
        failed = "fail" in str(talk.request.json)
        message = {"message": {"role": "assistant", "content": "x"}, "index": 0}
        await talk.json({"choices": [message], "usage": usage}, 500 if failed else 200)

    path = tmp_path / "r.json"
    async with FakeWorker() as worker, router(worker, path=path) as server:
        worker.script = answer
        await ask(server, post(turn(0)))
        assert (await admin(server, "/canary")).json["canary"] is None
        memory = server.router.policy
        rewrite(path, server, canary=CANARY)
        await until(lambda: server.router.canary is not None)
        assert server.router.policy.arms[0] is memory  # type: ignore[attr-defined]
        for number in range(20):
            await ask(server, post(turn(number)))
        await ask(server, post(turn(1, "fail")))
        await ask(server, post({"model": "m", "input": "x"}, "/v1/embeddings"))
        shown = (await admin(server, "/canary")).json
        assert shown["instance"] == server.router.instance
        canary = shown["canary"]
        assert (canary["id"], canary["control"], canary["strategy"]) == (
            "c1", "prefixaware", "session",
        )  # fmt: skip
        assert canary["unassigned_requests"] == 1
        control, candidate = canary["arms"]["control"], canary["arms"]["candidate"]
        assert control["requests"] + candidate["requests"] == 21
        assert control["errors"] + candidate["errors"] == 1
        assert control["requests"] >= 3 <= candidate["requests"]
        for arm in (control, candidate):
            count, total, _ = arm["sums"]["hit"]
            assert count > 0
            assert total / count == pytest.approx(0.4)
        config = (await admin(server, "/config")).json["config"]
        assert config["canary"]["share"] == 0.5
        rewrite(path, server, canary=None, strategy="session")
        await until(lambda: server.router.canary is None)
        await ask(server, post(turn(1)))
        last = (await admin(server, "/decisions?limit=1")).json["decisions"][0]
        assert (last["strategy"], last["arm"]) == ("session", "")


async def test_kvaware_candidate_starts_and_ends_its_services(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    canary = {**CANARY, "strategy": "kvaware", "share": 0.5}
    async with FakeWorker() as worker, router(worker, path=path) as server:
        rewrite(path, server, canary=canary)
        await until(lambda: server.router.kv is not None and server.router.kv.follower is not None)
        kv = server.router.kv
        for number in range(12):
            assert (await ask(server, post(turn(number)))).status == 200
        found = (await admin(server, "/decisions?limit=12")).json["decisions"]
        assert {one["strategy"] for one in found} == {"prefixaware", "kvaware"}
        for one in found:
            assert bool(one["fallback"]) is (one["arm"] == "candidate"), "only it waits for tokens"
        rewrite(path, server, strategy="kvaware", canary=None)
        await until(lambda: server.router.canary is None)
        assert server.router.kv is kv
