"""Replays follow the strategies' own code and report missing facts."""

from __future__ import annotations

from typing import Any

from routing.analysis.replay import MIN_REQUESTS, replay_strategies

WORKERS = ("w0", "w1")


def record(
    chain: list[str], chosen: str, reason: str = "prefix_hit", **more: Any
) -> dict[str, Any]:
    tokens = 64 * max(1, len(chain))
    return {
        "prompt_tokens": tokens,
        "prefix": chain,
        "prefix_blocks": len(chain),
        "chosen": chosen,
        "reason": reason,
        "candidates": [
            {"worker": name, "matched": {"prefix": 0}, "in_flight": 0, "score": 3 * tokens,
             "healthy": True}
            for name in WORKERS
        ],
        **more,
    }  # fmt: skip


def replay_by_strategy(records: list[dict[str, Any]], current: str) -> dict[str, Any]:
    return {one.strategy: one for one in replay_strategies(records, current)}


def chats(turns: int = 5) -> list[dict[str, Any]]:
    """Two conversations, each at a worker of its own; newest first, as routers give them."""
    found = []
    for turn in range(1, turns + 1):
        for name, worker in (("a", "w0"), ("b", "w1")):
            found.append(record([f"{name}{n}" for n in range(turn)], worker))
    return found[::-1]


def test_conversations_of_one_prefix_are_split_by_round_robin() -> None:
    # Hexadecimal names: a0, b0, a1, ...
    found = replay_by_strategy(chats(), "prefixaware")
    now, turns = found["prefixaware"], found["roundrobin"]
    assert (now.current, now.moved, now.requests) == (True, 0, 10)
    # Each turn but the first finds all blocks of the turn before.
    assert now.known_tokens == 2 * 64 * (1 + 2 + 3 + 4)
    assert now.tokens == 2 * 64 * (1 + 2 + 3 + 4 + 5)
    assert turns.requests == 10
    assert turns.busiest == 0.5


def test_round_robin_splits_pairs_that_arrive_in_another_rhythm() -> None:
    records = [record(["a0", "a1", "a2", "a3"], "w0") for _ in range(8)]
    found = replay_by_strategy(records, "prefixaware")
    assert found["roundrobin"].moved == 4
    assert found["roundrobin"].known_tokens == 4 * 64 * 6, "each worker computes it once"
    assert found["prefixaware"].known_tokens == 4 * 64 * 7


def test_kvaware_records_contain_prefixes_usable_by_prefixaware() -> None:
    found = replay_by_strategy(chats(), "kvaware")
    assert found["prefixaware"].why_not == ""
    assert found["prefixaware"].known_tokens > 0
    assert found["kvaware"].current


def test_missing_fields_of_records_are_reported() -> None:
    bare = [record([], "w0", "round_robin") for _ in range(8)]
    found = replay_by_strategy(bare, "roundrobin")
    assert found["roundrobin"].known_tokens is None
    assert "record no prefixes" in found["prefixaware"].why_not
    assert "record no sessions" in found["session"].why_not
    assert "doctor" in found["kvaware"].why_not


def test_sparse_broken_and_pinned_records_are_not_counted() -> None:
    broken: list[dict[str, Any]] = [{}, {"candidates": [{}], "prompt_tokens": 1, "chosen": "x"}]
    pinned = record(["a0"], "w0", "pinned")
    down = record(["a0"], "w0")
    for candidate in down["candidates"]:
        candidate["healthy"] = False
    few = [*broken, pinned, *([record(["a0"], "w0")] * (MIN_REQUESTS - 1))]
    assert "Fewer than" in replay_by_strategy(few, "prefixaware")["roundrobin"].why_not
    enough = [*few, *([down] * 3)]
    assert replay_by_strategy(enough, "prefixaware")["roundrobin"].requests == MIN_REQUESTS - 1


def test_busy_workers_of_the_record_are_avoided() -> None:
    busy = [record(["a0", "a1"], "w0") for _ in range(6)]
    for one in busy:
        one["candidates"][0]["score"] += 100_000
    assert replay_by_strategy(busy, "kvaware")["prefixaware"].moved == 6
