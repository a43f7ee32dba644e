"""Liveness of worker and beat: reported dead only if a restart helps."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, signals
from django.db import ConnectionHandler

from console import celery_watch
from console.celery_watch import SILENT_S, TASK_HANGS_S, TICK_LATE_S, BeatWatch, WorkerWatch
from console.core import counters


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def running(clock: Clock, *, broker: bool = True, threads: int = 2) -> WorkerWatch:
    made = WorkerWatch(lambda: broker, clock)
    made.consuming(sender=SimpleNamespace(controller=SimpleNamespace(concurrency=threads)))
    return made


def test_worker_is_ready_while_it_consumes_messages() -> None:
    made = WorkerWatch(lambda: True, Clock())
    assert made.ready()
    made.consuming(sender=SimpleNamespace(controller=SimpleNamespace(concurrency=3)))
    assert made.ready() == ""
    assert made.gauges()["worker_threads"][1] == 3
    made.ending()
    assert made.ready()


@pytest.mark.parametrize("broker", [True, False])
def test_silent_loop_is_dead_only_while_the_broker_responds(broker: bool) -> None:
    clock = Clock()
    made = running(clock, broker=broker)
    clock.now += SILENT_S
    assert made.alive() == ""
    clock.now += 1
    assert bool(made.alive()) is broker
    made.loop_reported()
    assert made.alive() == ""


def test_broker_is_not_queried_while_the_loop_reports() -> None:
    def never() -> bool:
        raise AssertionError("asked")

    assert WorkerWatch(never, Clock()).alive() == ""


def test_tasks_that_block_every_thread_are_named() -> None:
    clock = Clock()
    made = running(clock)
    made.task_began(task_id="1", task=SimpleNamespace(name="a.sweep"))
    clock.now += TASK_HANGS_S + 1
    made.loop_reported()
    assert made.alive() == ""  # one thread is free
    assert made.gauges()["task_oldest_seconds"][1] == TASK_HANGS_S + 1
    made.task_began(task_id="2", task=SimpleNamespace(name="b.sweep"))
    assert made.alive() == ""
    clock.now += TASK_HANGS_S + 1
    made.loop_reported()
    assert "a.sweep, b.sweep" in made.alive()
    made.task_ended(task_id="1")
    made.task_ended(task_id="never began")
    assert made.alive() == ""
    assert made.gauges()["tasks_running"][1] == 1


def test_stalled_schedule_is_dead() -> None:
    clock = Clock()
    made = BeatWatch(clock)
    assert made.ready()
    made.ticked()
    assert made.ready() == ""
    clock.now += TICK_LATE_S + 1
    assert "61 s" in made.alive()
    made.begin()
    assert made.alive() == ""


def test_worker_keeps_connections_to_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery closes a connection that is too old, and at an age of 0 each is."""
    engines = {"file": "sqlite3", "server": "postgresql"}
    found = {
        name: {"ENGINE": f"django.db.backends.{engine}", "CONN_MAX_AGE": 0}
        for name, engine in engines.items()
    }
    monkeypatch.setattr(celery_watch, "connections", SimpleNamespace(settings=found))
    celery_watch.keep_sqlite_open()
    assert found["file"]["CONN_MAX_AGE"] is None
    assert found["server"]["CONN_MAX_AGE"] == 0


def test_worker_registers_its_tasks_and_opens_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Celery("watched", broker="memory://", set_as_current=False)
    monkeypatch.setattr(celery_watch, "beat_watch", celery_watch.BeatWatch())

    @app.task(name="watched.work")
    def work() -> None:
        pass

    app.finalize()
    opened: list[Any] = []
    handlers: dict[str, list[Any]] = {}
    for name in (
        *("worker_init", "beat_init", "heartbeat_sent", "worker_ready", "worker_shutting_down"),
        *("task_prerun", "task_postrun"),
    ):
        kept = handlers.setdefault(name, [])
        signal = SimpleNamespace(connect=lambda found, weak, kept=kept: kept.append(found))
        monkeypatch.setattr(signals, name, signal)
    monkeypatch.setattr(
        celery_watch.admin_server,
        "start",
        lambda address, subject: opened.append((address, subject.program)),
    )
    celery_watch.install(app, "127.0.0.1:9100")
    handlers["worker_init"][0](sender=None)
    handlers["beat_init"][0](sender=None)
    assert opened == [("127.0.0.1:9100", "worker"), ("127.0.0.1:9100", "beat")]
    assert all(handlers.values())
    shown = {
        labels["outcome"]
        for name, labels, _ in counters.snapshot()
        if name == "task_runs" and labels.get("task") == "watched.work"
    }
    assert shown == {"done", "expected", "failed"}
    assert app.conf.beat_scheduler == "console.scheduler:TickingScheduler"


@pytest.mark.parametrize("address", ["", "127.0.0.1:9100"])
def test_hung_worker_that_nothing_probes_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    app = Celery("hung", broker="memory://", set_as_current=False)
    handlers: list[Any] = []
    monkeypatch.setattr(
        signals, "worker_init", SimpleNamespace(connect=lambda found, weak: handlers.append(found))
    )
    monkeypatch.setattr(celery_watch.admin_server, "start", lambda *_: None)
    started: list[Any] = []
    monkeypatch.setattr(celery_watch.threading, "Thread", lambda **fields: Started(started, fields))
    celery_watch.install(app, address)
    handlers[0](sender=None)
    watching = [fields for fields in started if fields["target"] is celery_watch.exit_if_hung]
    assert len(watching) == (not address)
    reasons = iter(["", "", "all threads are held"])
    waited: list[float] = []
    ended: list[int] = []
    celery_watch.exit_if_hung(lambda: next(reasons), waited.append, ended.append)
    assert (len(waited), ended) == (2, [1])
    assert "all threads are held" in caplog.text


class Started:
    def __init__(self, started: list[Any], fields: dict[str, Any]) -> None:
        self.add = lambda: started.append(fields)

    def start(self) -> None:
        self.add()


def test_broker_check() -> None:
    app = Celery("observed", broker="memory://", set_as_current=False)
    assert celery_watch._broker_answers(app)
    away = Celery("observed", broker="redis://127.0.0.1:1/0", set_as_current=False)
    assert not celery_watch._broker_answers(away)


@pytest.mark.django_db
def test_connection_to_a_replaced_database_file_is_closed(tmp_path: Path) -> None:
    """A backup is restored by moving it in place while the worker runs."""
    backup, file = tmp_path / "backup", tmp_path / "db.sqlite3"
    for path, value in ((backup, "old"), (file, "new")):
        with closing(sqlite3.connect(path)) as made:
            made.execute("CREATE TABLE t (x)")
            made.execute("INSERT INTO t VALUES (?)", (value,))
            made.commit()
    handler = ConnectionHandler(
        {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}}
    )
    connection = handler["default"]

    def read() -> str:
        with connection.cursor() as cursor:
            celery_watch._note_file(connection)
            return str(cursor.execute("SELECT x FROM t").fetchone()[0])

    assert read() == "new"
    celery_watch.close_replaced(handler.all())
    assert connection.connection is not None, "an unchanged file stays open"
    backup.replace(file)
    celery_watch.close_replaced(handler.all())
    assert connection.connection is None
    assert read() == "old"
    connection.close()
