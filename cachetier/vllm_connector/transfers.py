"""Moves blocks between L1's memory and L2 on threads of its own.

Promises that every job is reported exactly once, by its deadline, and only when no thread can touch
its memory any more; that loads go before stores; and that no more than `max_store_bytes` of stores
wait (each pins a place of L1), the rest being refused at once. Must not know vLLM.

A job is cut into parts of a few blocks, which several threads carry over several connections; a
part is one batch of the client, whose own deadline bounds it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

log = logging.getLogger("vllm.emberline")  # vLLM shows what its own loggers' children say

Item = tuple[bytes, memoryview]
# Carries one part out by its deadline: which of its items succeeded.
Carry = Callable[[Sequence[Item], float], Sequence[bool]]


@dataclass(frozen=True, slots=True)
class Finished:
    """`succeeded` has one entry an item, in the job's order."""

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
    succeeded: list[bool] = field(default_factory=list)


_Part = tuple[_Job, int, int]


class TransferPool:
    def __init__(
        self, load: Carry, store: Carry, *, threads: int, part_items: int, max_store_bytes: int
    ) -> None:
        self._carry = {True: load, False: store}
        self._part_items = part_items
        self._max_store_bytes = max_store_bytes
        self._store_bytes = 0
        self._loads: deque[_Part] = deque()
        self._stores: deque[_Part] = deque()
        self._unfinished = 0
        self._stopping = False
        self._changed = threading.Condition()
        self._finished: SimpleQueue[Finished] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"emberline-l2-{i}", daemon=True)
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued_store_bytes(self) -> int:
        return self._store_bytes

    def submit(
        self, job_id: int, items: Sequence[Item], timeout_s: float, *, is_load: bool
    ) -> bool:
        """False if the job was refused (too many stores wait): it is reported as failed, too."""
        now = time.monotonic()
        size = _byte_count(items)
        with self._changed:
            full = not is_load and self._store_bytes + size > self._max_store_bytes
            if full or self._stopping or not items:
                self._report_unmoved(job_id, items, is_load)
                return not items
            starts = range(0, len(items), self._part_items)
            job = _Job(job_id, is_load, items, now + timeout_s, now, len(starts))
            job.succeeded = [False] * len(items)
            queue = self._loads if is_load else self._stores
            queue.extend((job, start, start + self._part_items) for start in starts)
            if not is_load:
                self._store_bytes += size
            self._unfinished += 1
            self._changed.notify(len(starts))
        return True

    def finished(self) -> list[Finished]:
        """Jobs that ended since the last call."""
        done = []
        while True:
            try:
                done.append(self._finished.get_nowait())
            except Empty:
                return done

    def drain(self) -> None:
        """Wait until every submitted job has ended; their deadlines bound the wait."""
        with self._changed:
            self._changed.wait_for(lambda: self._unfinished == 0)

    def stop(self) -> None:
        """What waits fails, what is under way goes on; nothing new is taken."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """After `stop`: whether every thread is gone, so that the memory may be released."""
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def _report_unmoved(self, job_id: int, items: Sequence[Item], is_load: bool) -> None:
        self._finished.put(Finished(job_id, is_load, (False,) * len(items), 0, 0.0))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._loads or self._stores or self._stopping)
                if self._loads:
                    part = self._loads.popleft()
                elif self._stores:
                    part = self._stores.popleft()
                else:
                    return
                stopping = self._stopping
            self._run(part, stopping)

    def _run(self, part: _Part, stopping: bool) -> None:
        job, start, stop = part
        items = job.items[start:stop]
        left = job.deadline - time.monotonic()
        if left > 0 and not stopping:
            try:
                results = self._carry[job.is_load](items, left)
            except Exception:  # a job without a report would stop its request
                log.exception(
                    "a transfer to or from L2 failed by a fault of our own: taken for a miss"
                )
                results = [False] * len(items)
            job.succeeded[start : start + len(items)] = results
        with self._changed:
            job.parts_left -= 1
            if job.parts_left:
                return
            self._unfinished -= 1
            if not job.is_load:
                self._store_bytes -= _byte_count(job.items)
            self._finished.put(self._outcome(job))
            self._changed.notify_all()

    def _outcome(self, job: _Job) -> Finished:
        succeeded = tuple(job.succeeded)
        pairs = zip(job.items, succeeded, strict=True)
        moved = sum(view.nbytes for (_, view), well in pairs if well)
        return Finished(job.job_id, job.is_load, succeeded, moved, time.monotonic() - job.started)


def _byte_count(items: Sequence[Item]) -> int:
    return sum(view.nbytes for _, view in items)
