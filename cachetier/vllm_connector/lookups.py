"""Whether blocks are in L2: asked without blocking, answered within a deadline.

The scheduler's thread calls `ask`, `flush`, `forget` and `mark_missing`; one thread of our own
talks to the cache, a whole step's questions in one round trip. A question which is not answered
within `timeout_s` is answered "no" for good, so that no request waits for a cache; whatever comes
later is dropped. Must not know vLLM.

Ownership instead of locks: `_blocks` belongs to the scheduler's thread; the two queues are the only
things both touch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

log = logging.getLogger("vllm.emberline")  # vLLM shows what its own loggers' children say

_Batch = list[tuple[bytes, int]]


@dataclass(slots=True)
class _Block:
    ticket: int
    asked_at: float
    found: bool | None = None
    requests: set[str] = field(default_factory=set)


class LookupBoard:
    """`exists(keys)` runs on our thread and answers in the order asked."""

    def __init__(
        self, exists: Callable[[Sequence[bytes]], Sequence[bool]], timeout_s: float
    ) -> None:
        self.timed_out = 0
        self._exists = exists
        self._timeout_s = timeout_s
        self._blocks: dict[bytes, _Block] = {}
        self._by_request: dict[str, set[bytes]] = {}
        self._batch: _Batch = []
        self._next_ticket = 0
        self._questions: SimpleQueue[_Batch | None] = SimpleQueue()
        self._answers: SimpleQueue[list[tuple[bytes, int, bool]]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="emberline-lookup", daemon=True)
        self._thread.start()

    def ask(self, key: bytes, request_id: str) -> bool | None:
        """True or False once known, None while it is being found out."""
        block = self._blocks.get(key)
        if block is None:
            block = _Block(self._next_ticket, time.monotonic())
            self._next_ticket += 1
            self._blocks[key] = block
            self._batch.append((key, block.ticket))
        elif block.found is None:
            self._collect()
        block.requests.add(request_id)
        self._by_request.setdefault(request_id, set()).add(key)
        if block.found is None and time.monotonic() - block.asked_at > self._timeout_s:
            block.found = False
            self.timed_out += 1
        return block.found

    def flush(self) -> None:
        """Send this step's questions. Called once at the end of each scheduler step."""
        self._collect()
        if self._batch:
            self._questions.put(self._batch)
            self._batch = []

    def mark_missing(self, keys: Collection[bytes]) -> None:
        """After a load failed: the same request must not be sent for the same block again."""
        for key in keys:
            block = self._blocks.get(key)
            if block is not None:
                block.found = False

    def forget(self, request_id: str) -> None:
        """The request is over; what nobody else asked about is dropped."""
        for key in self._by_request.pop(request_id, ()):
            block = self._blocks.get(key)
            if block is None:
                continue
            block.requests.discard(request_id)
            if not block.requests:
                del self._blocks[key]

    def shutdown(self, timeout_s: float) -> None:
        self._questions.put(None)
        self._thread.join(timeout_s)

    def _collect(self) -> None:
        while True:
            try:
                answers = self._answers.get_nowait()
            except Empty:
                return
            for key, ticket, found in answers:
                block = self._blocks.get(key)
                if block is not None and block.ticket == ticket and block.found is None:
                    block.found = found

    def _work(self) -> None:
        while True:
            batch = self._questions.get()
            if batch is None:
                return
            try:
                found = self._exists([key for key, _ in batch])
            except Exception:  # a question without an answer would stop a request
                log.exception("a lookup in L2 failed by a fault of our own: taken for a miss")
                found = [False] * len(batch)
            answers = [
                (key, ticket, there) for (key, ticket), there in zip(batch, found, strict=False)
            ]
            self._answers.put(answers)
