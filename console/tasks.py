"""Base class of background tasks: sent after commit, counted, tolerant of broker failures.

`nudge` never raises and blocks at most as long as `PUBLISH_OPTIONS` allows. It only reduces
latency; the scheduled sweeps guarantee execution.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from celery import Task
from celery.exceptions import Ignore
from django.db import InterfaceError, OperationalError, transaction
from kombu import exceptions as broker
from kombu.pools import producers

from console.core.counters import increment
from console.database import database_unavailable

log = logging.getLogger(__name__)

# Publishing blocks a page: one attempt, with short deadlines (s).
PUBLISH_OPTIONS = {
    "socket_connect_timeout": 0.5,
    "socket_timeout": 1.0,
    "retry_on_timeout": False,
    "max_retries": 0,
}
# After a failure no other request waits for the same broker (s); the sweep covers the gap.
_PAUSE_S = 5.0
_REPORTED_FOR_S = 30.0


class _Breaker:
    """Circuit breaker: per process, the time until which publishing is skipped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed_at = 0.0

    def open(self) -> bool:
        with self._lock:
            return time.monotonic() < self._closed_at

    def trip(self) -> None:
        with self._lock:
            self._closed_at = time.monotonic() + _PAUSE_S

    def reset(self) -> None:
        with self._lock:
            self._closed_at = 0.0


breaker = _Breaker()


class _Outage:
    """Reports an unavailable database once in a while, for all tasks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported_at = float("-inf")

    def report(self, reason: str) -> None:
        with self._lock:
            if time.monotonic() - self._reported_at < _REPORTED_FOR_S:
                return
            self._reported_at = time.monotonic()
        log.warning("Database unavailable (%s): tasks are repeated by the sweeps", reason)


outage = _Outage()


class BaseTask(Task):
    """Base class of the console's Celery tasks. `@shared_task(base=BaseTask, throws=(Expected,))`;
    arguments are ids, never objects.

    An exception listed in `throws` is an expected outcome: it is logged in one line and counted as
    `expected`. So is an unavailable database, which is logged once for all tasks.
    """

    abstract = True
    ignore_result = True
    has_work: Callable[[], bool] | None = None
    """Cheap check by the scheduler before a run; without work, none takes place. Passed as
    `staticmethod`.
    """
    max_skip_s = 300.0
    """Maximum time without a run for lack of work, in case the check is wrong."""

    def nudge(self, *args: Any, countdown: float = 0) -> None:
        """Run soon after the current transaction commits; at once if there is none."""
        transaction.on_commit(partial(self._publish, args, countdown), robust=True)

    def spread(self, ids: Sequence[Any]) -> None:
        """Run for each id: the last one here, the others as tasks. A message costs as much as a
        short task, and mostly one row is due.
        """
        for item in ids[:-1]:
            self.nudge(str(item))
        for item in ids[-1:]:
            self(str(item))

    def _publish(self, args: tuple[Any, ...], countdown: float) -> None:
        if breaker.open():
            increment("task_nudges", task=self.name, outcome="skipped")
            return
        lost: tuple[type[BaseException], ...] = (broker.OperationalError, OSError, *self._lost())
        try:
            connection = self.app.connection_for_write(transport_options=PUBLISH_OPTIONS)
            with producers[connection].acquire(block=True, timeout=1) as producer:
                self.apply_async(args, producer=producer, retry=False, countdown=countdown or None)
        except lost as error:
            breaker.trip()
            increment("task_nudges", task=self.name, outcome="lost")
            log.warning("%s: broker down, left to the sweep: %s", self.name, type(error).__name__)
        else:
            breaker.reset()
            increment("task_nudges", task=self.name, outcome="sent")

    def _lost(self) -> tuple[type[BaseException], ...]:
        with self.app.connection_for_write() as connection:
            errors: tuple[type[BaseException], ...] = (
                *connection.connection_errors,
                *connection.channel_errors,
            )
        return errors

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        started = time.monotonic()
        outcome = "failed"
        try:
            result = super().__call__(*args, **kwargs)
            outcome = "done"
            return result
        except tuple(self.throws) as error:
            outcome = "expected"
            log.info("%s: expected outcome: %s", self.name, error)
            raise
        except (OperationalError, InterfaceError) as error:
            reason = database_unavailable(error)
            if not reason:
                raise
            outcome = "expected"
            outage.report(reason)
            raise Ignore from None  # every task would log a traceback, several times a second
        finally:
            increment("task_runs", task=self.name, outcome=outcome)
            log.debug("%s %s in %.3f s", self.name, outcome, time.monotonic() - started)
