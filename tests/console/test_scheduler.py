"""Schedule: which tasks run when, by a message or in the worker's own threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.concurrency.thread import TaskPool

from console import celery_watch, scheduler
from console.core import counters
from console.launcher.layout import Layout
from console.launcher.processes import Services, service_programs
from console.programs import WORKER_SCHEDULES
from console.tasks import BaseTask
from tests.support.waiting import until


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_schedule_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's default scheduler keeps a file in its working folder and fails if it cannot write
    it.
    """
    monkeypatch.chdir(tmp_path)
    app = Celery("timed", broker="memory://", set_as_current=False)
    app.conf.beat_schedule = {"work": {"task": "work", "schedule": 2.0}}
    made = scheduler.TickingScheduler(app=app)
    assert "work" in made.schedule
    made.sync()
    made.close()
    assert list(tmp_path.iterdir()) == []


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
        monkeypatch.setattr(scheduler.TickingScheduler, "clock", staticmethod(self.clock))
        monkeypatch.setattr(scheduler.connections, "close_all", lambda: None)
        self.scheduler = scheduler.TickingScheduler(app=app)
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


def test_a_long_period_does_not_delay_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = Beat(monkeypatch, more={"hourly": 3600.0})
    sent: list[tuple[str, float]] = []
    monkeypatch.setattr(
        beat.scheduler,
        "run_entry",
        lambda entry, _producer: sent.append((entry.name, beat.clock())),
    )
    began = beat.clock()
    for _ in range(4000):
        beat.scheduler.tick()
        beat.clock.now += 1.0
    assert [at - began for name, at in sent if name == "hourly"] == [60.0, 3660.0]


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


class Worker:
    """Thread pool of a worker, and an app of one task that waits for `go`."""

    def __init__(self) -> None:
        self.runs = 0
        self.go = threading.Event()
        self.error: Exception | None = None
        self.app = Celery("worked", broker="redis://127.0.0.1:1/0", set_as_current=False)
        self.app.task(self._work, name="worked.work", base=BaseTask, shared=False)
        self.app.conf.beat_schedule = {"work": {"task": "worked.work", "schedule": 0.01}}
        self.app.finalize()
        self.pool = TaskPool(2)

    def _work(self) -> None:
        self.runs += 1
        assert self.go.wait(60)
        if self.error is not None:
            raise self.error

    def made(self) -> scheduler.PoolScheduler:
        return scheduler.PoolScheduler(app=self.app, pool=self.pool)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr(celery_watch, "beat_watch", celery_watch.BeatWatch())
    made = Worker()
    yield made
    made.go.set()
    made.pool.stop()


@contextmanager
def ticking(made: scheduler.PoolScheduler) -> Iterator[scheduler.SchedulerThread]:
    thread = scheduler.SchedulerThread(made)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


def test_worker_runs_its_schedule_without_a_broker(worker: Worker) -> None:
    worker.go.set()
    with ticking(worker.made()):
        until(lambda: worker.runs > 2, 60)
        assert celery_watch.beat_watch.ready() == ""
    until(lambda: all(one.name != "scheduler" for one in threading.enumerate()), 60)


def test_task_that_still_runs_is_not_started_again(worker: Worker) -> None:
    made = worker.made()
    entry = made.schedule["work"]
    for _ in range(3):
        made.apply_entry(entry)
    until(lambda: worker.runs == 1, 60)
    made.apply_entry(entry)
    worker.go.set()
    until(lambda: not made._running, 60)
    assert worker.runs == 1
    made.apply_entry(entry)
    until(lambda: worker.runs == 2, 60)


def test_failed_task_runs_again_and_is_counted(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.error = OSError("the disk is full")
    worker.go.set()
    before = counters.total("task_runs", outcome="failed")
    made = worker.made()
    for times in (1, 2):
        made.apply_entry(made.schedule["work"])
        until(lambda: not made._running, 60)
        assert worker.runs == times
    assert counters.total("task_runs", outcome="failed") == before + 2
    assert "the disk is full" in caplog.text


def test_pool_that_stops_takes_no_more_tasks(worker: Worker) -> None:
    made = worker.made()
    worker.pool.stop()
    made.apply_entry(made.schedule["work"])
    assert (worker.runs, made._running) == (0, set())


def test_failed_tick_is_repeated(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker.go.set()
    monkeypatch.setattr(scheduler, "_RETRY_S", 0.01)
    made = worker.made()
    tick: Callable[[], float] = made.tick
    broken = [OSError("the clock is broken")]

    def ticked() -> float:
        if broken:
            raise broken.pop()
        return tick()

    monkeypatch.setattr(made, "tick", ticked)
    with ticking(made):
        until(lambda: worker.runs, 60)
    assert "the clock is broken" in caplog.text


def test_schedule_is_part_of_the_worker_only_where_no_beat_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Worker
) -> None:
    step = scheduler.SchedulerStep(worker)
    assert not step.include_if(worker)
    layout = Layout(tmp_path / "var")
    layout.prepare()
    programs = service_programs(layout, Services("127.0.0.1", 8000, "simulated", None, None))
    found = {one.name: one for one in programs}
    assert "celery-beat" not in found
    assert WORKER_SCHEDULES not in found["web"].env
    monkeypatch.setenv(WORKER_SCHEDULES, found["celery-worker"].env[WORKER_SCHEDULES])
    parent = SimpleNamespace(app=worker.app, pool=worker.pool, steps=[])
    assert step.include(parent)
    assert parent.steps == [step]
    assert "console.scheduler:SchedulerStep" in celery_app().steps["worker"]


def celery_app() -> Any:
    from console.celery_app import app

    return app
