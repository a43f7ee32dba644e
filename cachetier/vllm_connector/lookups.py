"""Whether blocks are in L2: asked without blocking, answered within a deadline.

The scheduler's thread calls `ask`, `flush`, `forget` and `mark_missing`; threads of our own talk to
the cache, a whole step's questions to one node in one round trip. A question which is not answered
within `timeout_s` is answered "no" for good, so that no request waits for a cache; whatever comes
later is dropped. Each node of L2 is a lane with a thread of its own, so that one which does not
answer makes "no" of its own blocks only. Must not know vLLM.

Ownership instead of locks: `_blocks` and `_lanes` belong to the scheduler's thread; queues are the
only things two threads touch. No thread stands between it and a lane's: each hand-over may cost a
turn of the interpreter's lock, which a stepping engine is loath to give.
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
_Questions = SimpleQueue[_Batch | None]
# A lane nobody asked anything for so long is given up: nodes come and go.
_IDLE_S = 60.0


@dataclass(slots=True)
class _Block:
    ticket: int
    asked_at: float
    found: bool | None = None
    requests: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Lane:
    questions: _Questions
    thread: threading.Thread
    used_at: float


class LookupBoard:
    """`exists(keys)` runs on a thread of ours and answers in the order asked; the keys of one call
    are of one lane, as `lane_of` names it. `on_news` is called on a thread of ours after answers
    came."""

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
        self._asked = 0  # questions sent and not collected yet
        self._blocks: dict[bytes, _Block] = {}
        self._by_request: dict[str, set[bytes]] = {}
        self._batch: _Batch = []
        self._next_ticket = 0
        self._lanes: dict[str, _Lane] = {}
        self._answers: SimpleQueue[list[tuple[bytes, int, bool]]] = SimpleQueue()

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

    @property
    def is_waiting(self) -> bool:
        """Whether a question that was sent has no answer yet; on the scheduler's thread."""
        return self._asked > 0

    def flush(self) -> None:
        """Send this step's questions. Called once at the end of each scheduler step."""
        self._collect()
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        self._asked += len(batch)
        by_lane: dict[str, _Batch] = {}
        for question in batch:
            by_lane.setdefault(self._lane_of(question[0]), []).append(question)
        for name, part in by_lane.items():
            self._lane(name).questions.put(part)
        self._give_up_idle()

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
        """Ends our threads; those which wait for a node are left to their deadlines."""
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
            self._asked -= len(answers)
            for key, ticket, found in answers:
                block = self._blocks.get(key)
                if block is not None and block.ticket == ticket and block.found is None:
                    block.found = found

    def _lane(self, name: str) -> _Lane:
        lane = self._lanes.get(name)
        if lane is None:
            questions: _Questions = SimpleQueue()
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

    # -- on a lane's thread --------------------------------------------------------------------
    def _work(self, questions: _Questions) -> None:
        while True:
            batch = questions.get()
            if batch is None:
                return
            try:
                found = self._exists([key for key, _ in batch])
            except Exception:  # a question without an answer would stop a request
                log.exception("a lookup in L2 failed by a fault of our own: taken for a miss")
                found = ()
            known = [*found, *[False] * len(batch)]  # what was not answered is a "no"
            answers = [
                (key, ticket, there) for (key, ticket), there in zip(batch, known, strict=False)
            ]
            self._answers.put(answers)
            self._on_news()


# A step as short as this ran no model.
_EMPTY_STEP_S = 0.002
# Never longer than this at once: requests arrive in between, and are only seen by the next step.
_PAUSE_S = 0.002


class Pauses:
    """`is_waiting` says whether somebody waits for us; `news` is for any thread."""

    def __init__(self, is_waiting: Callable[[], bool]) -> None:
        self._is_waiting = is_waiting
        self._came = threading.Event()
        self._stepped_at = 0.0

    def news(self) -> None:
        self._came.set()

    def after_step(self) -> None:
        """On the scheduler's thread, at the end of each step."""
        if time.monotonic() - self._stepped_at < _EMPTY_STEP_S and self._is_waiting():
            self._came.wait(_PAUSE_S)
        self._came.clear()
        self._stepped_at = time.monotonic()
