"""Liveness of Celery's worker and beat, observed inside the process.

Distinguishes a hung loop or hung threads (a restart helps) from an unreachable broker (a restart
makes it worse). Celery signals report progress; nothing is sent through the broker.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from celery import Celery, signals
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from kombu.exceptions import OperationalError

from console import broker_guard
from console.core import counters
from console.telemetry import admin_server, meters

log = logging.getLogger(__name__)

SILENT_S = 120.0
"""A worker's loop reports every 20 s, and waits at most 32 s between two connection attempts."""
TASK_HANGS_S = 300.0
"""Tasks end within a minute; threads cannot be ended from outside."""
TICK_LATE_S = 60.0
_CHECK_S = 15.0
_BROKER_S = 1.0

Clock = Callable[[], float]


_FILE = "opened_file"
"""Attribute of a connection: device and inode of its SQLite file."""


class WorkerWatch:
    """Progress of one worker's loop and of the tasks in its threads."""

    def __init__(self, broker_answers: Callable[[], bool], clock: Clock = time.monotonic) -> None:
        self._broker_answers = broker_answers
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[str, tuple[str, float]] = {}
        self._threads = 0
        self._reported_at = clock()
        self._consuming = False

    def loop_reported(self, **_: Any) -> None:
        self._reported_at = self._clock()

    def consuming(self, sender: Any = None, **_: Any) -> None:
        self._threads = int(getattr(getattr(sender, "controller", sender), "concurrency", 0) or 0)
        self._consuming = True
        self.loop_reported()

    def ending(self, **_: Any) -> None:
        self._consuming = False

    def task_began(self, task_id: str = "", task: Any = None, **_: Any) -> None:
        with self._lock:
            self._running[task_id] = (str(getattr(task, "name", "")), self._clock())

    def task_ended(self, task_id: str = "", **_: Any) -> None:
        with self._lock:
            name, began = self._running.pop(task_id, ("", 0.0))
        if name:
            meters.task_ended(name, self._clock() - began)

    def alive(self) -> str:
        """Return why a restart would help, "" if it would not."""
        now = self._clock()
        with self._lock:
            hung = sorted(n for n, began in self._running.values() if now - began > TASK_HANGS_S)
        if self._threads and len(hung) >= self._threads:
            return f"all {self._threads} threads are held by tasks that hang: {', '.join(hung)}"
        silent = now - self._reported_at
        if silent > SILENT_S and self._broker_answers():
            return f"the loop has been silent for {silent:.0f} s while the broker answers"
        return ""

    def ready(self) -> str:
        return "" if self._consuming else "it consumes no messages"

    def gauges(self) -> Mapping[str, tuple[str, float]]:
        with self._lock:
            oldest = min((began for _, began in self._running.values()), default=None)
            running = len(self._running)
        age = 0.0 if oldest is None else self._clock() - oldest
        return {
            "tasks_running": ("Running background tasks.", running),
            "task_oldest_seconds": ("Age of the oldest running background task (s).", age),
            "worker_threads": ("Maximum number of concurrent background tasks.", self._threads),
            "worker_silent_seconds": (
                "Time since the worker's loop last reported (s).",
                self._clock() - self._reported_at,
            ),
        }


class BeatWatch:
    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._ticked_at = clock()
        self._ticked = False

    def begin(self) -> None:
        """Start the lateness clock now: the module may have been imported long before."""
        self._ticked_at = self._clock()

    def ticked(self) -> None:
        self._ticked_at = self._clock()
        self._ticked = True
        counters.increment("beat_ticks")

    def alive(self) -> str:
        late = self._clock() - self._ticked_at
        return f"the scheduler has been idle for {late:.0f} s" if late > TICK_LATE_S else ""

    def ready(self) -> str:
        return "" if self._ticked else "the scheduler has not started"


beat_watch = BeatWatch()


def keep_sqlite_open() -> None:
    """Keep the SQLite connections of this process's threads: Celery closes them after each task,
    and opening one costs more than most tasks. A server's connections may break meanwhile.
    """
    for settings in connections.settings.values():
        if settings["ENGINE"] == "django.db.backends.sqlite3":
            settings["CONN_MAX_AGE"] = None
    connection_created.connect(_note_file)


def close_replaced(opened: Iterable[BaseDatabaseWrapper]) -> None:
    """Close connections to an SQLite file that was replaced, as by a restored backup: they would
    work on the old one for ever.
    """
    for connection in opened:
        file_before = getattr(connection, _FILE, None)
        if (
            file_before is not None
            and file_before != _file_of(connection)
            and not connection.in_atomic_block
        ):
            log.warning("The database file was replaced; it is opened again")
            connection.close()


def _note_file(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection.vendor == "sqlite":
        setattr(connection, _FILE, _file_of(connection))


def _file_of(connection: BaseDatabaseWrapper) -> tuple[int, int] | None:
    try:
        status = Path(connection.settings_dict["NAME"]).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def exit_if_hung(
    alive: Callable[[], str],
    wait: Callable[[float], object] = time.sleep,
    end: Callable[[int], object] = os._exit,
) -> None:
    """End this process once a restart would help; supervisord restarts it."""
    while not (why := alive()):
        wait(_CHECK_S)
    log.critical("This process ends, so that it is restarted: %s", why)
    end(1)


def install(app: Celery, address: str) -> None:
    """Watch this process if it becomes a worker or beat; `address` is its admin port."""

    def worker_starts(**_: Any) -> None:
        keep_sqlite_open()
        broker_guard.start(app.conf.broker_url)
        watch = WorkerWatch(lambda: _broker_answers(app))
        for task in (name for name in app.tasks if not name.startswith("celery.")):
            for outcome in ("done", "expected", "failed"):
                counters.declare("task_runs", task=task, outcome=outcome)
        signals.heartbeat_sent.connect(watch.loop_reported, weak=False)
        signals.worker_ready.connect(watch.consuming, weak=False)
        signals.worker_shutting_down.connect(watch.ending, weak=False)
        signals.task_prerun.connect(watch.task_began, weak=False)
        signals.task_prerun.connect(
            lambda **_: close_replaced(connections.all(initialized_only=True)), weak=False
        )
        signals.task_postrun.connect(watch.task_ended, weak=False)
        admin_server.start(
            address, admin_server.AdminSubject("worker", watch.alive, watch.ready, watch.gauges)
        )
        if not address:  # nothing probes it
            threading.Thread(
                target=exit_if_hung, args=(watch.alive,), name="watch", daemon=True
            ).start()

    def beat_starts(**_: Any) -> None:
        beat_watch.begin()
        broker_guard.start(app.conf.broker_url)
        admin_server.start(
            address, admin_server.AdminSubject("beat", beat_watch.alive, beat_watch.ready)
        )

    app.conf.beat_scheduler = "console.scheduler:TickingScheduler"
    app.steps["worker"].add("console.scheduler:SchedulerStep")
    signals.worker_init.connect(worker_starts, weak=False)
    signals.beat_init.connect(beat_starts, weak=False)


def _broker_answers(app: Celery) -> bool:
    options = {"socket_connect_timeout": _BROKER_S, "socket_timeout": _BROKER_S, "max_retries": 0}
    try:
        with app.connection_for_read(transport_options=options) as connection:
            connection.ensure_connection(max_retries=1, timeout=_BROKER_S, interval_start=0)
    except (OperationalError, OSError):
        return False
    return True
