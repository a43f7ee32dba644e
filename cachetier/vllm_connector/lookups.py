"""Non-blocking L2 lookups with a deadline.

The scheduler thread calls `ask`, `flush`, `forget` and `mark_missing`; lane threads query the
cache, one round trip per node and step. A lookup not answered within `timeout_s` counts as a miss
for good, so that no request waits for a cache; late replies are dropped. Each L2 node is a lane
with its own thread, so an unresponsive node affects only its own blocks.

Ownership instead of locks: `_blocks` and `_lanes` belong to the scheduler thread; threads share
only queues. There is no intermediate thread: each handover may cost a GIL switch in a busy engine.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

log = logging.getLogger("vllm.emberline")  # a child of vLLM's logger, so that records are shown

_Batch = list[tuple[bytes, int]]
_LookupQueue = SimpleQueue[_Batch | None]
# Idle lanes end after this: nodes come and go.
_IDLE_S = 60.0


@dataclass(slots=True)
class _Block:
    ticket: int
    asked_at: float
    found: bool | None = None
    requests: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Lane:
    questions: _LookupQueue
    thread: threading.Thread
    used_at: float


class LookupBoard:
    """Pending and answered lookups of the scheduler.

    `exists(keys)` runs on a lane thread with keys of one lane (`lane_of`) and answers in order.
    `on_news` is called on a lane thread after answers arrived.
    """

    def __init__(
        self,
        exists: Callable[[Sequence[bytes]], Sequence[bool]],
        lane_of: Callable[[bytes], str],
        timeout_s: float,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self.timed_out = 0
        self._exists = exists
        self._lane_of = lane_of
        self._timeout_s = timeout_s
        self._on_news = on_news
        self._pending_lookups = 0  # lookups sent but not collected
        self._blocks: dict[bytes, _Block] = {}
        self._by_request: dict[str, set[bytes]] = {}
        self._batch: _Batch = []
        self._next_ticket = 0
        self._lanes: dict[str, _Lane] = {}
        self._answers: SimpleQueue[list[tuple[bytes, int, bool]]] = SimpleQueue()

    def ask(self, key: bytes, request_id: str) -> bool | None:
        """Return whether the block exists, None while the lookup is pending."""
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

    @property
    def is_waiting(self) -> bool:
        """Return whether a sent lookup is unanswered. Scheduler thread only."""
        return self._pending_lookups > 0

    def flush(self) -> None:
        """Send the lookups of this step. Called at the end of each scheduler step."""
        self._collect()
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        self._pending_lookups += len(batch)
        by_lane: dict[str, _Batch] = {}
        for question in batch:
            by_lane.setdefault(self._lane_of(question[0]), []).append(question)
        for name, part in by_lane.items():
            self._lane(name).questions.put(part)
        self._give_up_idle()

    def mark_missing(self, keys: Collection[bytes]) -> None:
        """Mark blocks missing after a failed load, so that the request does not retry them."""
        for key in keys:
            block = self._blocks.get(key)
            if block is not None:
                block.found = False

    def mark_all_missing(self) -> None:
        """Mark the blocks of all running requests missing, as their names have changed."""
        self.mark_missing(list(self._blocks))

    def forget(self, request_id: str) -> None:
        """End the request; drop lookups that no other request shares."""
        for key in self._by_request.pop(request_id, ()):
            block = self._blocks.get(key)
            if block is None:
                continue
            block.requests.discard(request_id)
            if not block.requests:
                del self._blocks[key]

    def shutdown(self, timeout_s: float) -> None:
        """Stop the threads; those waiting for a node end at their deadlines."""
        end = time.monotonic() + timeout_s
        for lane in self._lanes.values():
            lane.questions.put(None)
        for lane in self._lanes.values():
            lane.thread.join(max(end - time.monotonic(), 0.0))

    def _collect(self) -> None:
        while True:
            try:
                answers = self._answers.get_nowait()
            except Empty:
                return
            self._pending_lookups -= len(answers)
            for key, ticket, answer in answers:
                block = self._blocks.get(key)
                if block is not None and block.ticket == ticket and block.found is None:
                    block.found = answer

    def _lane(self, name: str) -> _Lane:
        lane = self._lanes.get(name)
        if lane is None:
            questions: _LookupQueue = SimpleQueue()
            thread = threading.Thread(
                target=self._work, args=(questions,), name="emberline-lookup", daemon=True
            )
            lane = self._lanes[name] = _Lane(questions, thread, 0.0)
            thread.start()
        lane.used_at = time.monotonic()
        return lane

    def _give_up_idle(self) -> None:
        before = time.monotonic() - _IDLE_S
        for name in [name for name, lane in self._lanes.items() if lane.used_at < before]:
            self._lanes.pop(name).questions.put(None)

    def _work(self, questions: _LookupQueue) -> None:
        while True:
            batch = questions.get()
            if batch is None:
                return
            try:
                exists = self._exists([key for key, _ in batch])
            except Exception:  # an unanswered lookup would stall a request
                log.exception("L2 lookup failed with an internal error; counting it as a miss")
                exists = ()
            all_answers = [*exists, *[False] * len(batch)]  # missing answers count as misses
            answers = [
                (key, ticket, there)
                for (key, ticket), there in zip(batch, all_answers, strict=False)
            ]
            self._answers.put(answers)
            self._on_news()


# A shorter step ran no model.
_EMPTY_STEP_S = 0.002
# Longest pause: requests that arrive meanwhile are seen only by the next step.
_PAUSE_S = 0.002


class StepPauses:
    """Pauses between idle scheduler steps while lookups are pending. `news` is thread-safe."""

    def __init__(self, is_waiting: Callable[[], bool]) -> None:
        self._is_waiting = is_waiting
        self._came = threading.Event()
        self._stepped_at = 0.0

    def news(self) -> None:
        self._came.set()

    def after_step(self) -> None:
        """Pause if needed. Scheduler thread, at the end of each step."""
        if time.monotonic() - self._stepped_at < _EMPTY_STEP_S and self._is_waiting():
            self._came.wait(_PAUSE_S)
        self._came.clear()
        self._stepped_at = time.monotonic()
