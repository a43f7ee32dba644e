"""Predicted tokens of the index equal those reported by the simulated worker."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from routing.engine.kv import chain
from routing.engine.kv.index import Index
from routing.engine.kv.match import match, usable_blocks
from routing.engine.kv.subscriber import Subscriber, SubscriptionTarget
from tests.routing.engine.harness import until
from tests.support.ports import free_ports
from tests.support.simulated import SimulatedWorker

BLOCK = 32
BLOCK_BYTES = BLOCK * 46080


def predict(index: Index, prompt: list[int], salt: str) -> tuple[int, int]:
    names = chain.extend_chain(index.root("demo", "", salt), chain.pack_tokens(prompt), BLOCK)
    found = match(index, {BLOCK: names[: usable_blocks(len(prompt), BLOCK)]}).workers.get("w")
    return (found.gpu, found.l1) if found is not None else (0, 0)


@pytest.mark.parametrize(
    "flags",
    [
        ("--device-blocks", "40"),
        ("--device-blocks", "40", "--l1-bytes", str(60 * BLOCK_BYTES)),
        ("--device-blocks", "40", "--l1-bytes", str(60 * BLOCK_BYTES), "--l1-policy", "arc"),
    ],
    ids=["device", "lru", "arc"],
)
async def test_predicted_tokens_equal_reported_tokens(
    tmp_path: Path, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("routing.engine.kv.subscriber.TICK_S", 0.005)
    monkeypatch.setattr("routing.engine.kv.recovery.IDLE_POLL_S", 0.005)
    events, replay = free_ports(2)
    endpoints = ("--kv-events", f"tcp://*:{events}", "--kv-replay", f"tcp://*:{replay}")
    worker = await asyncio.to_thread(SimulatedWorker, tmp_path, *endpoints, *flags)

    async def ask(path: str) -> tuple[int, bytes]:
        return await asyncio.to_thread(worker.get, path)

    index = Index(b"s" * 32)
    subscriber = Subscriber(index, lambda *_a, **_k: None, (OSError,))
    subscriber.follow([SubscriptionTarget("w", "127.0.0.1", "demo", ask)])
    try:
        await until(lambda: subscriber.status()[0]["state"] == "following", "following")
        hits = await _compare(worker, index, subscriber)
        assert hits > 20  # the work had something to find
        counts = subscriber.applier.counts
        assert counts["removed"] > 50  # and to lose
        assert counts["parked"] == counts["removed_unknown"] == counts["malformed_event"] == 0
    finally:
        await subscriber.close()
        worker.close()


async def _compare(worker: SimulatedWorker, index: Index, subscriber: Subscriber) -> int:
    """Sixty requests of conversations which grow; returns how many found something cached."""
    source = random.Random(5)
    talks: list[tuple[list[int], str]] = []
    hits = 0
    for _ in range(60):
        if not talks or source.random() < 0.3:
            salt = source.choice(["", "", "tenant"])
            talks.append(([source.randrange(40_000) for _ in range(source.randrange(200))], salt))
        talk, salt = source.choice(talks[-6:])
        talk += [source.randrange(40_000) for _ in range(source.randrange(1, 150))]
        del talk[700:]
        predicted = predict(index, talk, salt)
        body: dict[str, Any] = {"prompt": talk, "max_tokens": source.randrange(1, 40)}
        if salt:
            body["cache_salt"] = salt
        status, answer = await asyncio.to_thread(worker.post, "/v1/completions", body)
        assert status == 200, answer
        reported = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert sum(predicted) == reported, (predicted, len(talk))
        hits += reported > 0
        await _settled(subscriber)
    return hits


async def _settled(subscriber: Subscriber) -> None:
    """All that was published has arrived: a worker answers after it publishes, so one poll of
    its replay, begun now, is enough."""
    stream = next(iter(subscriber._workers["w"].streams.values()))
    polls = stream.follower.counts["poll"]
    await until(
        lambda: (
            stream.follower.counts["poll"] > polls
            and stream.follower._ask is None
            and not stream._waiting
            and stream._work is None
        ),
        "caught up",
    )
