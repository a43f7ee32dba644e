from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery
from celery.exceptions import Ignore
from django.db import OperationalError, transaction

from console import tasks
from console.core import counters
from console.tasks import BaseTask
from tests.support.cachenode import Valkey


class Expected(Exception):
    pass


@pytest.fixture(autouse=True)
def closed_breaker() -> Iterator[None]:
    tasks.breaker.reset()
    yield
    tasks.breaker.reset()


def make_app(broker: str) -> Celery:
    app = Celery("tests", broker=broker, set_as_current=False)
    app.conf.update(task_default_queue="tests", broker_connection_timeout=1)
    return app


def make_task(broker: str, name: str) -> BaseTask:
    app = make_app(broker)

    @app.task(base=BaseTask, name=name, throws=(Expected,))
    def work(pk: str) -> str:
        if pk == "expected":
            raise Expected("as foreseen")
        if pk == "locked":
            cause = sqlite3.OperationalError("database is locked")
            cause.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise OperationalError from cause
        if pk == "crash":
            raise RuntimeError("not foreseen")
        return pk

    return work


def arrived(task: BaseTask) -> int:
    """Take all messages out of the queue and return their number."""
    number = 0
    with task.app.connection_for_read() as connection:
        queue = connection.SimpleQueue("tests")
        while queue.qsize():
            queue.get(timeout=1).ack()
            number += 1
        queue.close()
    return number


@pytest.mark.django_db(transaction=True)
def test_nudge_waits_for_the_commit() -> None:
    task = make_task("memory://", "tests.commit")
    with transaction.atomic():
        task.nudge("1")
        assert arrived(task) == 0
    assert arrived(task) == 1
    assert counters.total("task_nudges", task="tests.commit", outcome="sent") == 1


@pytest.mark.django_db(transaction=True)
def test_rolled_back_change_sends_no_nudge() -> None:
    task = make_task("memory://", "tests.rollback")
    with pytest.raises(RuntimeError), transaction.atomic():
        task.nudge("1")
        raise RuntimeError
    assert arrived(task) == 0


@pytest.mark.django_db(transaction=True)
def test_the_last_of_several_ids_runs_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task("memory://", "tests.spread")
    ran: list[str] = []
    monkeypatch.setattr(task, "run", ran.append)
    task.spread([])
    assert (ran, arrived(task)) == ([], 0)
    task.spread([1, 2, 3])
    assert (ran, arrived(task)) == (["3"], 2)


@pytest.fixture
def deaf_broker() -> Iterator[str]:
    """Accept connections and never respond."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


@pytest.fixture
def no_broker() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"redis://:hush-hush@127.0.0.1:{port}/0"


# Test-local: the first user in a process waits for the database to be created.
@pytest.mark.timeout(60, func_only=True)
@pytest.mark.parametrize("kind", ["no_broker", "deaf_broker"])
@pytest.mark.django_db(transaction=True)
def test_unavailable_broker_fails_nothing(
    request: pytest.FixtureRequest, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = make_task(request.getfixturevalue(kind), f"tests.{kind}")
    with transaction.atomic():
        task.nudge("1")
    assert counters.total("task_nudges", task=task.name, outcome="lost") == 1
    assert "left to the sweep" in caplog.text
    assert "hush-hush" not in caplog.text
    for _ in range(100):  # later calls do not wait again
        task.nudge("2")
    assert counters.total("task_nudges", task=task.name, outcome="skipped") == 100


@pytest.mark.django_db(transaction=True)
def test_nudges_resume_when_the_broker_returns(tmp_path: Path) -> None:
    broker = Valkey(tmp_path)
    task = make_task(broker.url, "tests.back")
    task.nudge("1")
    broker.stop()
    task.nudge("2")
    assert counters.total("task_nudges", task="tests.back", outcome="lost") == 1
    again = Valkey(tmp_path, port=broker.port)
    try:
        tasks.breaker.reset()  # as after the pause
        task.nudge("3")
        assert counters.total("task_nudges", task="tests.back", outcome="sent") == 2
        with redis.Redis.from_url(again.url) as peer:
            assert peer.llen("tests") == 1  # the first was lost with its broker
    finally:
        again.stop()


def test_outcomes_are_counted() -> None:
    task = make_task("memory://", "tests.outcome")
    assert task("1") == "1"
    with pytest.raises(Expected):
        task("expected")
    with pytest.raises(RuntimeError):
        task("crash")
    for outcome in ("done", "expected", "failed"):
        assert counters.total("task_runs", task="tests.outcome", outcome=outcome) == 1


def test_unavailable_database_is_reported_once_for_all_tasks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "outage", tasks._Outage())
    for name in ("tests.one", "tests.other"):
        task = make_task("memory://", name)
        with pytest.raises(Ignore):
            task("locked")
        assert counters.total("task_runs", task=name, outcome="expected") == 1
    assert caplog.text.count("Database unavailable (locked)") == 1
    assert "Traceback" not in caplog.text


def test_console_application_publishes_the_tasks() -> None:
    """Otherwise a nudge would go to Celery's default broker unnoticed."""
    from celery import current_app

    from console.celery_app import app

    assert current_app._get_current_object() is app
    for name in app.conf.beat_schedule:
        app.loader.import_default_modules()
        assert name in app.tasks, f"the timetable names {name}, which does not exist"


@pytest.mark.django_db
def test_every_check_for_work_answers() -> None:
    """One that fails would send its sweep every time, unnoticed."""
    from console.celery_app import app

    app.loader.import_default_modules()
    checks = {name: getattr(app.tasks[name], "has_work", None) for name in app.conf.beat_schedule}
    known = {name: check() for name, check in checks.items() if check is not None}
    assert set(known.values()) <= {True, False}
    assert known["endpoints.tasks.sweep"] is False
    assert "cachetier.tasks.sweep" in known


def test_the_timetable_cannot_pile_up() -> None:
    from console.celery_app import app

    for entry in app.conf.beat_schedule.values():
        assert entry["options"]["expires"] <= entry["schedule"]
    assert app.conf.task_acks_late
    assert app.conf.accept_content == ["json"]
    assert not app.conf.worker_hijack_root_logger
    limit = app.conf.broker_transport_options["visibility_timeout"]
    assert limit > app.conf.task_time_limit
