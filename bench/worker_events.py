"""Cache contents of real vLLM workers by their own KV events, without any router.

The truth that causes of misses are compared with: `follow` subscribes to a worker's socket, past
the proxy that loses messages on their way to the routers.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import zmq

from routing.engine.kv.events import engine_id
from routing.engine.kv.wire import (
    Decoder,
    Removed,
    Stored,
    Tier,
    WireError,
    parse_tier,
    read_message,
)
from tests.support.vllm.worker import BLOCK_TOKENS

_POLL_MS = 50


class WorkerCache:
    """Blocks of one worker by the engine's hashes."""

    def __init__(self) -> None:
        self.tiers: dict[int, set[Tier]] = {}
        self.removed: dict[int, Tier] = {}  # tier of the last removal
        self.stored: dict[int, list[float]] = {}  # times of the copies on the device
        # Hash by the hash before, the adapter and the tokens.
        self._names: dict[tuple[int | None, str, tuple[int, ...]], int] = {}

    def apply(self, event: Any, at: float) -> None:
        if isinstance(event, Stored):
            self._store(event, at)
        elif isinstance(event, Removed):
            tier = parse_tier(event.medium)
            if tier is not None:
                for name in map(engine_id, event.block_hashes):
                    self._remove(name, tier)
        else:
            self.tiers.clear()
            self.stored.clear()

    def _store(self, event: Stored, at: float) -> None:
        tier = parse_tier(event.medium)
        if tier is None:
            return
        parent = event.parent_block_hash
        before = None if parent is None else engine_id(parent)
        for number, name in enumerate(map(engine_id, event.block_hashes)):
            self.tiers.setdefault(name, set()).add(tier)
            if tier is Tier.GPU:
                tokens = event.token_ids[number * BLOCK_TOKENS : (number + 1) * BLOCK_TOKENS]
                self._names[before, event.lora_name or "", tuple(tokens)] = name
                self.stored.setdefault(name, []).append(at)
            before = name

    def _remove(self, name: int, tier: Tier) -> None:
        copies = self.stored.get(name, [])
        if tier is Tier.GPU and copies:
            copies.pop(0)
        if tier is not Tier.GPU or not copies:
            self.tiers.get(name, set()).discard(tier)
            self.removed[name] = tier

    def chain(self, tokens: Sequence[int], adapter: str = "") -> list[int]:
        """Return the hashes of a prompt's leading blocks that the worker ever stored."""
        found: list[int] = []
        before: int | None = None
        for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            part = tuple(tokens[start : start + BLOCK_TOKENS])
            before = self._names.get((before, adapter, part))
            if before is None:
                break
            found.append(before)
        return found

    def held(self, tokens: Sequence[int], adapter: str = "") -> int:
        """Return the leading tokens of a prompt that are in any tier of the worker."""
        count = 0
        for name in self.chain(tokens, adapter):
            if not self.tiers.get(name):
                break
            count += BLOCK_TOKENS
        return count


class WorkerEvents:
    def __init__(self) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._workers: dict[str, WorkerCache] = {}
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def __getitem__(self, worker: str) -> WorkerCache:
        return self._workers[worker]

    def follow(self, worker: str, endpoint: str) -> None:
        cache = self._workers[worker] = WorkerCache()
        thread = threading.Thread(target=self._run, args=(cache, endpoint), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, cache: WorkerCache, endpoint: str) -> None:
        socket = self._context.socket(zmq.SUB)
        socket.linger = 0
        socket.rcvhwm = 0  # nothing is dropped
        socket.subscribe(b"")
        socket.connect(endpoint)
        decoder = Decoder()
        while not self._ending.is_set():
            if not socket.poll(_POLL_MS):
                continue
            try:
                batch = decoder.decode(read_message(socket.recv_multipart())[1])
            except WireError as error:
                print(f"  unread event of {endpoint}: {error}", flush=True)
                continue
            for event in batch.events:
                cache.apply(event, batch.ts)
        socket.close()

    def close(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(10)
        self._context.destroy(linger=0)
