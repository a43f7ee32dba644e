"""Usage of each key: complete, summed, bounded; spent budgets reject."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from routing.engine.access.key_usage import REMOVED_KEYS, KeyUse
from routing.engine.observe.decisions import Decision
from tests.routing.engine.harness import admin, ask, chat, metric, post, router
from tests.routing.engine.test_router_access import bearer, keys
from tests.support.fake_worker import FakeWorker


def ended(key: str, **facts: Any) -> Decision:
    decision = Decision("1", 0.0, "prefixaware")
    decision.key_id = key
    for name, value in facts.items():
        setattr(decision, name, value)
    return decision


def reported(key: str, prompt: int, completion: int, cached: int = 0) -> Decision:
    return ended(
        key, estimated=False, counted=True, prompt_tokens=prompt, completion_tokens=completion,
        cached_tokens=cached, status=200,
    )  # fmt: skip


async def used(server: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await admin(server, "/usage")).json
    return found


async def test_usage_is_charged_per_key(tmp_path: Path) -> None:
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=keys(tmp_path, a=False, b=False)) as server:
            for _ in range(3):
                await ask(server, post(chat("hi " * 40), authorization=bearer("a")))
            await ask(server, post(chat("hi " * 40), authorization=bearer("b")))
            await ask(server, post(chat("hi"), authorization="Bearer wrong"))
            found = await used(server)
            a, b = found["keys"]["a"], found["keys"]["b"]
            assert (a["requests"], b["requests"], set(found["keys"])) == (3, 1, {"a", "b"})
            assert a["prompt_tokens"] == 3 * b["prompt_tokens"] > 0
            for name in ("prompt_tokens", "completion_tokens"):
                total = await metric(server, f"emberline_router_{name}_total")
                assert a[name] + b[name] == total


def test_errors_count_as_requests() -> None:
    use = KeyUse("i")
    use.add(ended("a", error="upstream_reset", status=502))
    shown: Any = use.show()["keys"]
    shown = shown["a"]
    assert (shown["requests"], shown["errors"], shown["unreported"]) == (1, 1, 0)


def test_removed_keys_are_kept_up_to_the_bound_and_then_summed() -> None:
    use = KeyUse("i", kept=3)
    for number in range(5):
        use.add(reported(f"k{number}", 10, 1, cached=4))
    use.configure(frozenset({"k0"}))
    shown: Any = use.show()["keys"]
    assert "k0" in shown, "it is still a key"
    assert len(shown) <= 4
    assert sum(key["prompt_tokens"] for key in shown.values()) == 50
    assert sum(key["requests"] for key in shown.values()) == 5
    assert shown[REMOVED_KEYS]["cached_tokens"] >= 4


async def test_spent_budget_rejects_until_the_next_period(tmp_path: Path) -> None:
    file = Path(keys(tmp_path, spent=False, new=False))
    entries = json.loads(file.read_text())["keys"]
    for entry, until in zip(entries, (time.time() + 90, time.time() - 1), strict=True):
        entry["spent_until"] = until
    file.write_text(json.dumps({"keys": entries}))
    async with FakeWorker() as worker, router(worker, api_keys_file=str(file)) as server:
        answer = await ask(server, post(chat("hi"), authorization=bearer("spent")))
        assert (answer.status, answer.code) == (429, "insufficient_quota")
        assert 0 < int(answer.headers["retry-after"]) <= 90
        assert "resets at" in answer.json["error"]["message"]
        assert (await ask(server, post(chat("hi"), authorization=bearer("new")))).status == 200
        assert len(worker.requests) == 1
        reason = "key_budget_spent"
        assert await metric(server, "emberline_router_request_errors_total", reason=reason) == 1
