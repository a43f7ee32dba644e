"""Background copies of values found at their previous owner to their present owner.

Bounded and counted; a failure costs nothing but the value's place. The value also stays where it
was, until it is evicted there.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from cachetier.client.cache_client import CacheClient
from cachetier.client.connection import CacheError, ReplyError
from cachetier.client.outcomes import Counters, KeyOutcome, PreviousResult

_MAX_PENDING_BYTES = 64 * 1024 * 1024
_TIMEOUT_S = 10.0
_OPERATION = "move"

Copies = list[tuple[bytes, memoryview]]


class ValueMoves:
    """Moves of one pool; `find(name)` returns a node's client. Thread-safe."""

    def __init__(self, find: Callable[[str], CacheClient | None], counters: Counters) -> None:
        self._find = find
        self._counters = counters
        self._lock = threading.Lock()
        self._pending_bytes = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="emberline-moves")

    def start(self, source: str, owner: str, items: Sequence[tuple[bytes, memoryview]]) -> None:
        """Copy the bodies and store them on `owner` later."""
        size = sum(view.nbytes for _, view in items)
        with self._lock:
            if self._pending_bytes + size > _MAX_PENDING_BYTES:
                self._counters.add_previous(_OPERATION, PreviousResult.DROPPED, len(items))
                return
            self._pending_bytes += size
        copies = [(key, memoryview(bytes(view))) for key, view in items]
        with contextlib.suppress(RuntimeError):  # pool closed
            self._thread.submit(self._move, source, owner, copies, size)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _move(self, source: str, owner: str, copies: Copies, size: int) -> None:
        try:
            by_life: dict[int, Copies] = {}
            for item in copies:
                by_life.setdefault(self._read_life(source, item[0]), []).append(item)
            failed = len(by_life.pop(-1, ()))
            self._counters.add_previous(_OPERATION, PreviousResult.FAILED, failed)
            for ttl_s, some in by_life.items():
                self._store(owner, some, ttl_s)
        finally:
            with self._lock:
                self._pending_bytes -= size

    def _store(self, owner: str, copies: Copies, ttl_s: int) -> None:
        client = self._find(owner)
        stored = 0
        if client is not None:
            outcomes = client.adopt(copies, ttl_s, _TIMEOUT_S)
            stored = sum(outcome is KeyOutcome.OK for outcome in outcomes)
        self._counters.add_previous(_OPERATION, PreviousResult.OK, stored)
        self._counters.add_previous(_OPERATION, PreviousResult.FAILED, len(copies) - stored)

    def _read_life(self, source: str, key: bytes) -> int:
        """Return the value's remaining life (s), 0 if it does not expire, -1 if unknown."""
        client = self._find(source)
        if client is None:
            return -1
        try:
            left = client.ask(b"PTTL", key, timeout_s=_TIMEOUT_S)
        except (CacheError, ReplyError):
            return -1
        if not isinstance(left, int) or left == -2:
            return -1
        return 0 if left == -1 else max(1, math.ceil(left / 1000))
