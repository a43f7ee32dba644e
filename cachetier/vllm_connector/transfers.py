"""Block transfers between L1 memory and L2 on background threads.

Every job is reported exactly once, by its deadline, and only after no thread can access its memory.
Loads precede stores; at most `max_store_bytes` of stores are queued (each pins L1), the rest is
rejected at once.

A job is split into parts of a few blocks, each of one lane (L2 node) with its own threads and
connections. A part is one client batch with its own deadline. An unresponsive node delays only its
own blocks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

log = logging.getLogger("vllm.emberline")  # a child of vLLM's logger, so that records are shown

# Idle threads end after this: nodes come and go.
_IDLE_S = 60.0

Item = tuple[bytes, memoryview]
# Run one part by its deadline; return success per item.
PartRunner = Callable[[Sequence[Item], float], Sequence[bool]]


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """Finished job; `succeeded` has one entry per item, in order."""

    job_id: int
    is_load: bool
    succeeded: tuple[bool, ...]
    byte_count: int
    seconds: float


@dataclass(slots=True)
class _Job:
    job_id: int
    is_load: bool
    items: Sequence[Item]
    deadline: float
    started: float
    parts_left: int
    succeeded: list[bool]


# A job and the indices of its items.
_Part = tuple[_Job, list[int]]


@dataclass(slots=True)
class _Lane:
    name: str
    wanted: threading.Condition
    loads: deque[_Part] = field(default_factory=deque)
    stores: deque[_Part] = field(default_factory=deque)
    threads: int = 0
    idle: int = 0

    @property
    def waiting(self) -> int:
        return len(self.loads) + len(self.stores)


class TransferPool:
    """Transfer threads: `threads` per lane, `lane_of` maps a key to its lane. `on_news` is called
    on a background thread after a load ended.
    """

    def __init__(
        self,
        load: PartRunner,
        store: PartRunner,
        lane_of: Callable[[bytes], str],
        *,
        threads: int,
        part_items: int,
        max_store_bytes: int,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._carry = {True: load, False: store}
        self._lane_of = lane_of
        self._most_threads = threads
        self._part_items = part_items
        self._max_store_bytes = max_store_bytes
        self._on_news = on_news
        self._store_bytes = 0
        self._unfinished = 0
        self._unfinished_loads = 0
        self._stopping = False
        self._lock = threading.Lock()
        self._all_done = threading.Condition(self._lock)
        self._lanes: dict[str, _Lane] = {}
        self._threads: set[threading.Thread] = set()
        self._finished: SimpleQueue[FinishedJob] = SimpleQueue()

    @property
    def is_loading(self) -> bool:
        return self._unfinished_loads > 0

    def submit(
        self, job_id: int, items: Sequence[Item], timeout_s: float, *, is_load: bool
    ) -> bool:
        """Queue the job; False (and reported as failed) if the store queue is full."""
        now = time.monotonic()
        size = _byte_count(items)
        parts = self._cut(items)
        with self._lock:
            full = not is_load and self._store_bytes + size > self._max_store_bytes
            if full or self._stopping or not items:
                self._finished.put(FinishedJob(job_id, is_load, (False,) * len(items), 0, 0.0))
                return not items
            job = _Job(
                job_id, is_load, items, now + timeout_s, now, len(parts), [False] * len(items)
            )
            if not is_load:
                self._store_bytes += size
            self._unfinished += 1
            self._unfinished_loads += is_load
            for name, places in parts:
                self._queue(name, (job, places))
        return True

    def finished(self) -> list[FinishedJob]:
        """Return jobs that ended since the last call."""
        done = []
        while True:
            try:
                done.append(self._finished.get_nowait())
            except Empty:
                return done

    def drain(self) -> None:
        """Wait until all submitted jobs ended, bounded by their deadlines."""
        with self._lock:
            self._all_done.wait_for(lambda: self._unfinished == 0)

    def stop(self) -> None:
        """Fail queued jobs, finish running ones, accept no new ones."""
        with self._lock:
            self._stopping = True
            for lane in self._lanes.values():
                lane.wanted.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Return whether all threads ended after `stop`, so that the memory may be released."""
        end = time.monotonic() + timeout_s
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in threads)

    def _cut(self, items: Sequence[Item]) -> list[tuple[str, list[int]]]:
        by_lane: dict[str, list[int]] = {}
        for place, (key, _) in enumerate(items):
            by_lane.setdefault(self._lane_of(key), []).append(place)
        size = self._part_items
        return [
            (name, places[start : start + size])
            for name, places in by_lane.items()
            for start in range(0, len(places), size)
        ]

    def _queue(self, name: str, part: _Part) -> None:
        """Requires the lock."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name, threading.Condition(self._lock))
        (lane.loads if part[0].is_load else lane.stores).append(part)
        if lane.waiting > lane.idle and lane.threads < self._most_threads:
            lane.threads += 1
            thread = threading.Thread(
                target=self._work, args=(lane,), name="emberline-l2", daemon=True
            )
            self._threads.add(thread)
            thread.start()
        else:
            lane.wanted.notify()

    def _work(self, lane: _Lane) -> None:
        try:
            while True:
                with self._lock:
                    if not self._wait_for_work(lane):
                        lane.threads -= 1
                        if not lane.threads:
                            self._lanes.pop(lane.name, None)
                        return
                    part = (lane.loads or lane.stores).popleft()
                    stopping = self._stopping
                self._run(part, stopping)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _wait_for_work(self, lane: _Lane) -> bool:
        """Return False when this thread should end. Requires the lock."""
        if not lane.waiting and not self._stopping:
            lane.idle += 1
            lane.wanted.wait_for(lambda: lane.waiting or self._stopping, _IDLE_S)
            lane.idle -= 1
        return lane.waiting > 0

    def _run(self, part: _Part, stopping: bool) -> None:
        job, places = part
        left = job.deadline - time.monotonic()
        if left > 0 and not stopping:
            try:
                results = self._carry[job.is_load]([job.items[i] for i in places], left)
                for place, well in zip(places, results, strict=False):
                    job.succeeded[place] = well
            except Exception:  # an unreported job would stall its request
                log.exception("L2 transfer failed with an internal error; counting it as a miss")
        with self._lock:
            job.parts_left -= 1
            if job.parts_left:
                return
            self._unfinished -= 1
            self._unfinished_loads -= job.is_load
            if not job.is_load:
                self._store_bytes -= _byte_count(job.items)
            self._finished.put(_outcome(job))
            self._all_done.notify_all()
        if job.is_load:
            self._on_news()


def _outcome(job: _Job) -> FinishedJob:
    succeeded = tuple(job.succeeded)
    pairs = zip(job.items, succeeded, strict=True)
    moved = sum(view.nbytes for (_, view), well in pairs if well)
    return FinishedJob(job.job_id, job.is_load, succeeded, moved, time.monotonic() - job.started)


def _byte_count(items: Sequence[Item]) -> int:
    return sum(view.nbytes for _, view in items)
