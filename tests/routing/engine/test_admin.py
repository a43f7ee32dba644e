"""/explain?strategy=: ranking under a strategy that is not active."""

from __future__ import annotations

import json
from typing import Any

from tests.routing.engine.harness import admin, ask, chat, post, router
from tests.support.fake_worker import FakeWorker

STORY = chat("a long story " * 100)


async def explained(server: Any, strategy: str, body: Any = STORY, lines: str = "") -> Any:
    wire = json.dumps(body).encode()
    return await admin(server, f"/explain?strategy={strategy}", "POST", wire, lines)


async def test_each_strategy_ranks_without_side_effects() -> None:
    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:
        homes = [(await ask(server, post(STORY))).headers["x-emberline-worker"] for _ in range(2)]
        assert homes[0] == homes[1], "prefixaware keeps it together"
        other = "w1" if homes[0] == "w0" else "w0"
        for _ in range(3):
            reported = (await explained(server, "roundrobin")).json
            assert (reported["strategy"], reported["reason"]) == ("roundrobin", "round_robin")
            assert reported["chosen"] == other, "not picked yet, and asking is no pick"
        own = (await explained(server, "prefixaware")).json
        assert (own["chosen"], own["reason"]) == (homes[0], "prefix_hit")
        assert len((await admin(server, "/decisions")).json["decisions"]) == 2


async def test_session_is_read_from_its_configured_place() -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        for key, send in (
            ("header:x-session-id", lambda name: (STORY, f"x-session-id: {name}\r\n")),
            ("cookie:sid", lambda name: (STORY, f"cookie: a=b; sid={name}\r\n")),
            ("body:user", lambda name: ({**STORY, "user": name}, "")),
        ):
            async with router(one, two, session_key=key) as server:
                homes = set()
                for number in range(8):
                    body, lines = send(f"user-{number}")
                    reported = (await explained(server, "session", body, lines)).json
                    assert reported["reason"] == "session_sticky", key
                    again = (await explained(server, "session", body, lines)).json
                    assert again["chosen"] == reported["chosen"]
                    homes.add(reported["chosen"])
                assert homes == {"w0", "w1"}


async def test_kvaware_explains_the_prefixaware_ranking() -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, two, strategy="kvaware") as server:
            home = (await ask(server, post(STORY))).headers["x-emberline-worker"]
            reported = (await explained(server, "prefixaware")).json
            assert (reported["chosen"], reported["reason"]) == (home, "prefix_hit")


async def test_unknown_facts_are_reported_as_such() -> None:
    async with FakeWorker() as one, router(one, strategy="roundrobin") as server:
        for strategy, content in (
            ("prefixaware", "has no prefix memory"),
            ("kvaware", "has no KV index"),
            ("nonsense", "Unknown strategy"),
        ):
            answer = await explained(server, strategy)
            assert answer.status == 400
            assert content in answer.json["error"]["message"]


async def test_without_workers_the_ranking_is_empty() -> None:
    async with FakeWorker() as one, router(one) as server:
        await admin(server, "/drain?worker=w0", "POST")
        assert (await explained(server, "roundrobin")).status == 503


async def test_decision_list_is_brief_and_paged_on_request() -> None:
    async with FakeWorker() as one, router(one) as server:
        for _ in range(5):
            await ask(server, post(STORY))
        whole = (await admin(server, "/decisions?limit=5")).json["decisions"]
        assert all(item["prefix"] and item["candidates"] for item in whole)
        part = (await admin(server, "/decisions?limit=2&skip=2")).json["decisions"]
        assert [item["id"] for item in part] == [item["id"] for item in whole[2:4]]
        brief = (await admin(server, "/decisions?limit=5&brief=1")).json["decisions"]
        assert [item["id"] for item in brief] == [item["id"] for item in whole]
        assert not any({"prefix", "candidates"} & set(item) for item in brief)
        assert (await admin(server, "/decisions?skip=x")).status == 400


async def test_prompt_text_is_shown_only_where_it_is_allowed() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        await ask(server, post(STORY))
        (hidden,) = (await admin(server, "/decisions")).json["decisions"]
        assert "preview" not in hidden and "a long" not in str(hidden)
    async with FakeWorker() as worker, router(worker, decisions={"preview_chars": 12}) as server:
        await ask(server, post(STORY))
        (listed,) = (await admin(server, "/decisions?brief=1")).json["decisions"]
        whole = (await admin(server, f"/decisions/{listed['id']}")).json
        assert listed["preview"] == whole["preview"] == "a long story"
        decision = server.router.ring.get(listed["id"])
        journalled = decision.show("demo", server.router.identifier.digest)
        assert "a long" not in str(journalled)
