"""Liveness of worker and beat: reported dead only if a restart helps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from celery import Celery, signals

from console import celery_watch
from console.celery_watch import SILENT_S, TASK_HANGS_S, TICK_LATE_S, BeatWatch, WorkerWatch
from console.core import counters
from console.tasks import BaseTask


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


def test_schedule_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's default scheduler keeps a file in its working folder and fails if it cannot write
    it.
    """
    monkeypatch.chdir(tmp_path)
    app = Celery("timed", broker="memory://", set_as_current=False)
    app.conf.beat_schedule = {"work": {"task": "work", "schedule": 2.0}}
    scheduler = celery_watch.TickingScheduler(app=app)
    assert "work" in scheduler.schedule
    scheduler.sync()
    scheduler.close()
    assert list(tmp_path.iterdir()) == []


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
    assert app.conf.beat_scheduler == "console.celery_watch:TickingScheduler"


def test_broker_check() -> None:
    app = Celery("observed", broker="memory://", set_as_current=False)
    assert celery_watch._broker_answers(app)
    away = Celery("observed", broker="redis://127.0.0.1:1/0", set_as_current=False)
    assert not celery_watch._broker_answers(away)


class Beat:
    """Scheduler with one sweep, of which `sent` counts the messages."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, more: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        self.clock = Clock()
        self.sent = 0
        self.answer: bool | Exception = False
        app = Celery("swept", broker="memory://", set_as_current=False)
        checked = staticmethod(self._has_work)
        app.task(self._run, name="swept.sweep", base=BaseTask, has_work=checked, shared=False)
        app.conf.beat_schedule = {
            name: {"task": "swept.sweep", "schedule": period_s}
            for name, period_s in {"sweep": 2.0, **more}.items()
        }
        app.finalize()
        monkeypatch.setattr(celery_watch.TickingScheduler, "clock", staticmethod(self.clock))
        monkeypatch.setattr(celery_watch.connections, "close_all", lambda: None)
        self.scheduler = celery_watch.TickingScheduler(app=app)
        monkeypatch.setattr(self.scheduler, "apply_async", self._send)

    def _run(self) -> None:
        pass

    def _has_work(self) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def _send(self, *_args: Any, **_named: Any) -> None:
        self.sent += 1

    def sweep(self, after_s: float = 2.0) -> int:
        """Return the number of messages of one sweep."""
        self.clock.now += after_s
        before = self.sent
        self.scheduler.apply_entry(self.scheduler.schedule["sweep"])
        return self.sent - before


def test_a_sweep_without_work_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = Beat(monkeypatch)
    assert beat.sweep() == 1, "the first one, whatever the check returns"
    skipped = counters.total("beat_skips")
    assert [beat.sweep() for _ in range(3)] == [0, 0, 0]
    assert counters.total("beat_skips") == skipped + 3
    beat.answer = True
    assert beat.sweep() == 1


def test_a_wrong_check_delays_a_sweep_by_minutes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = Beat(monkeypatch)
    assert beat.sweep() == 1
    assert beat.sweep(BaseTask.max_skip_s - 1) == 0
    assert beat.sweep(1) == 1


def test_a_failing_check_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = Beat(monkeypatch)
    assert beat.sweep() == 1
    beat.answer = OSError("the database does not answer")
    assert [beat.sweep(), beat.sweep()] == [1, 1]


def test_due_entries_share_a_wake_up_and_stay_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    before = counters.total("beat_ticks")
    monkeypatch.setattr(celery_watch, "beat_watch", celery_watch.BeatWatch())
    beat = Beat(monkeypatch, more={"slow": 10.0})
    beat.answer = True
    assert beat.scheduler.tick() == 2.0
    found = []
    for late_s in (0.0, 0.3, 0.0, 0.1, 0.0):
        beat.clock.now += 2.0 + late_s
        known = beat.sent
        pause_s = beat.scheduler.tick()
        found.append((beat.sent - known, round(pause_s, 3)))
        beat.clock.now -= late_s
    assert found == [(1, 2.0), (1, 1.7), (1, 2.0), (1, 1.9), (2, 2.0)]
    assert counters.total("beat_ticks") == before + 6
    assert celery_watch.beat_watch.ready() == ""


def test_an_entry_is_applied_once_after_a_pause_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beat = Beat(monkeypatch)
    beat.answer = True
    beat.scheduler.tick()
    beat.clock.now += 3601.0
    assert beat.scheduler.tick() == 1.0
    assert beat.sent == 1
    assert beat.scheduler.tick() == 1.0
    assert beat.sent == 1
