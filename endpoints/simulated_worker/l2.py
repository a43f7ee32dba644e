"""L2 client of a simulated worker: real server and commands, markers instead of blocks.

Errors count as misses and never fail a request. Blocking calls run on a few threads; the store
queue is bounded, and dropped blocks are counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.pool import CachePool
from cachetier.wire.envelope import block_key

MARKER_BYTES = 64
_THREADS = 2
_BATCH = 256
_MAX_WAITING_STORES = 64


class L2:
    """L2 cache of a simulated worker. `namespace` separates different workers, and simulated from
    real blocks.
    """

    def __init__(
        self,
        nodes: Nodes,
        password: str,
        ttl_s: int,
        timeout_s: float,
        facts: dict[str, object],
        on_change: Callable[[str], None],
    ) -> None:
        self.client = CachePool(nodes, password, on_change=on_change)
        self.dropped = 0
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        text = json.dumps({"simulated": True, **facts}, sort_keys=True)
        self._namespace = hashlib.sha256(text.encode()).hexdigest()[:32]
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="l2")
        self._stores: set[asyncio.Future[list[KeyOutcome]]] = set()

    async def load(self, blocks: Sequence[bytes]) -> tuple[set[bytes], float]:
        """Return the blocks found by a prefix walk, and the lookup time (s)."""
        start = time.monotonic()
        hashes: set[bytes] = set()
        loop = asyncio.get_running_loop()
        for first in range(0, len(blocks), _BATCH):
            batch = blocks[first : first + _BATCH]
            outcomes = await loop.run_in_executor(self._threads, self._load, batch)
            hashes.update(b for b, o in zip(batch, outcomes, strict=True) if o is KeyOutcome.OK)
            if outcomes[-1] is not KeyOutcome.OK:
                break
        return hashes, time.monotonic() - start

    def store(self, blocks: Sequence[bytes]) -> None:
        """Store in the background; drop the blocks if the queue is full."""
        if not blocks:
            return
        if len(self._stores) >= _MAX_WAITING_STORES:
            self.dropped += len(blocks)
            return
        loop = asyncio.get_running_loop()
        waiting = loop.run_in_executor(self._threads, self._store, list(blocks))
        self._stores.add(waiting)
        waiting.add_done_callback(self._stores.discard)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.client.close()

    def _load(self, blocks: Sequence[bytes]) -> list[KeyOutcome]:
        keys = [self._key(block) for block in blocks]
        targets = [memoryview(bytearray(MARKER_BYTES)) for _ in blocks]
        outcomes = self.client.load(list(zip(keys, targets, strict=True)), self._timeout_s)
        return [
            KeyOutcome.CORRUPT if outcome is KeyOutcome.OK and target != _marker(block) else outcome
            for block, target, outcome in zip(blocks, targets, outcomes, strict=True)
        ]

    def _store(self, blocks: Sequence[bytes]) -> list[KeyOutcome]:
        outcomes: list[KeyOutcome] = []
        for first in range(0, len(blocks), _BATCH):
            items = [
                (self._key(block), memoryview(_marker(block)))
                for block in blocks[first : first + _BATCH]
            ]
            outcomes += self.client.store(items, self._ttl_s, self._timeout_s)
        return outcomes

    def _key(self, block: bytes) -> bytes:
        return block_key(self._namespace, 0, block)


def _marker(block: bytes) -> bytes:
    return (block * (MARKER_BYTES // len(block) + 1))[:MARKER_BYTES]
