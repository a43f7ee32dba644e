"""Schedule of periodic tasks: in beat, which sends messages, or in a thread of the worker."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import bootsteps
from celery.beat import ScheduleEntry, Scheduler
from django.db import close_old_connections, connections

from console import celery_watch
from console.celery_watch import Clock
from console.core import counters, environment
from console.programs import WORKER_SCHEDULES

log = logging.getLogger(__name__)

REOPEN_S = 60.0
"""Maximum age of the database connection of the checks, which may be stale."""
LATE_S = 0.5
"""Accepted difference between two wake-ups of beat and a period."""
FIRST_S = 60.0
"""Longest wait for an entry's first run, so that a console restarted every hour prunes, too."""
_RETRY_S = 1.0
_STOP_S = 5.0


class TickingScheduler(Scheduler):
    """In-memory scheduler that reports each tick and sends no sweep without work. The default
    file-based one fails on a full disk, and sweeps need no persisted times.

    Entries stay in step, so that all that are due share one wake-up: each is due at multiples of
    its period since its first run. Celery's heap keeps one wake-up and several conversions of times
    for each entry, which cost more than the checks.

    A check may be wrong, so that it suppresses a sweep for the task's `max_skip_s` at most; one
    that fails suppresses nothing.
    """

    clock: Clock = staticmethod(time.monotonic)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._due_at: dict[str, float] = {}
        self._sent_at: dict[str, float] = {}
        self._opened_at = 0.0
        super().__init__(*args, **kwargs)

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        task = self.app.tasks.get(entry.task)
        check = getattr(task, "has_work", None)
        if check is None or self._is_overdue(entry, task.max_skip_s) or self._has_work(check):
            self._sent_at[entry.name] = self.clock()
            self.run_entry(entry, producer)
        else:
            counters.increment("beat_skips", task=entry.task)

    def run_entry(self, entry: ScheduleEntry, producer: Any) -> None:
        super().apply_entry(entry, producer=producer)

    def _is_overdue(self, entry: ScheduleEntry, max_skip_s: float) -> bool:
        sent_at = self._sent_at.get(entry.name)
        return sent_at is None or self.clock() - sent_at >= max_skip_s - LATE_S

    def _has_work(self, check: Callable[[], bool]) -> bool:
        now = self.clock()
        if now - self._opened_at >= REOPEN_S:
            connections.close_all()
            self._opened_at = now
        try:
            return check()
        except Exception:
            log.debug("Check for work failed; the task is sent", exc_info=True)
            connections.close_all()
            return True

    def tick(self, *_: Any, **__: Any) -> float:
        """Apply all due entries; return the seconds until the next one is due."""
        now = self.clock()
        for name, entry in self.schedule.items():
            period_s = entry.schedule.run_every.total_seconds()
            due_at = self._due_at.setdefault(name, now + min(period_s, FIRST_S))
            if now >= due_at:
                # One run makes up for all that were missed.
                self._due_at[name] = due_at + period_s * ((now - due_at) // period_s + 1)
                self.apply_entry(entry, producer=self.producer)
        celery_watch.beat_watch.ticked()
        return max(0.0, min(self._due_at.values(), default=now + 1) - self.clock())


class PoolScheduler(TickingScheduler):
    """Runs due tasks in the worker's thread pool: without a message, which costs more than most
    tasks, and also while the broker is away. A task whose last run has not ended is not started
    again.
    """

    producer = None  # opens no connection to the broker

    def __init__(self, *args: Any, pool: Any, **kwargs: Any) -> None:
        self._pool = pool
        self._running: set[str] = set()
        super().__init__(*args, **kwargs)

    def run_entry(self, entry: ScheduleEntry, producer: Any) -> None:
        del producer  # no message
        if entry.name in self._running:
            return
        self._running.add(entry.name)
        try:
            self._pool.apply_async(self._run, (entry,), callback=lambda _: None)
        except RuntimeError:  # the pool terminates
            self._running.discard(entry.name)

    def _run(self, entry: ScheduleEntry) -> None:
        close_old_connections()  # as before and after a task with a message
        try:
            self.app.tasks[entry.task].apply()
        finally:
            self._running.discard(entry.name)
            close_old_connections()


class SchedulerThread:
    """Ticks until stopped. A tick that fails is logged and repeated."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        celery_watch.beat_watch.begin()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            try:
                pause_s = self._scheduler.tick()
            except Exception:
                log.exception("The schedule failed; retrying in %.0f s", _RETRY_S)
                pause_s = _RETRY_S
        connections.close_all()


class SchedulerStep(bootsteps.StartStopStep):
    """Part of the worker that runs the schedule, where `WORKER_SCHEDULES` is set."""

    requires = ("celery.worker.components:Pool",)
    label = "Scheduler"
    conditional = True

    def include_if(self, _worker: Any) -> bool:
        return environment.flag(os.environ, WORKER_SCHEDULES)

    def create(self, worker: Any) -> SchedulerThread:
        return SchedulerThread(PoolScheduler(app=worker.app, pool=worker.pool))
