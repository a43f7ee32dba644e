"""Announced changes reconcile their owners; a failing handler does not end the listener."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from celery import signals
from pytest_django.fixtures import Settings

from console.processkit.changes import SOCKET, ChangeSender
from console.provisioners.local import programs, state
from console.provisioners.local.programs import ProgramSeen
from console.provisioners.local.rpc import ProcessState
from console.system import changes, program_watch, tasks
from console.system.changes import ChangeListener, start_listener
from tests.console.system.conftest import point_at
from tests.support.waiting import until


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def handle(name: str) -> None:
        found.append(name)
        if name == "broken":
            raise RuntimeError("database is gone")

    monkeypatch.setattr(changes, "_handlers", {"endpoint": handle})
    return found


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChangeListener]:
    monkeypatch.setenv(SOCKET, str(tmp_path / "c.sock"))
    monkeypatch.setattr(changes, "RETRY_S", 0.01)
    monkeypatch.setattr(changes, "_models", {})
    found = start_listener()
    assert found is not None
    yield found
    found.stop()


def test_a_program_is_announced_as_its_owner_and_once(
    tmp_path: Path, settings: Settings, handled: list[str]
) -> None:
    point_at(settings, tmp_path)
    for name in ("demo-worker", "demo-router"):
        state.save(tmp_path, state.Workload(name, owner="endpoint/demo"))
    changes.announce({"program/demo-worker-0", "program/demo-router-0", "endpoint/demo"})
    assert handled == ["demo"]


def test_only_programs_of_the_console_are_compared_for_lack_of_a_handler(
    tmp_path: Path, settings: Settings, handled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[None] = []
    monkeypatch.setattr(tasks.observe_programs, "nudge", lambda: compared.append(None))
    point_at(settings, tmp_path)
    state.save(tmp_path, state.Workload("run", owner="benchmark/17"))
    changes.announce({"program/run-0", "endpoint/", "noise"})
    assert compared == []
    changes.announce({"program/valkey"})
    assert len(compared) == 1
    assert handled == []


def test_the_listener_outlives_a_failing_handler(
    listener: ChangeListener, handled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew: list[None] = []
    monkeypatch.setattr(changes, "observe_anew", lambda: anew.append(None))
    sender = ChangeSender(tmp_path / "c.sock")
    assert sender.send("endpoint/broken")
    until(lambda: handled == ["broken"], what="the failing handler")
    until(lambda: anew, what="everything is observed, since the notice is lost")
    assert sender.send("endpoint/demo")
    until(lambda: handled == ["broken", "demo"], what="the next notice")
    sender.close()


def test_nothing_listens_where_nothing_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SOCKET, raising=False)
    assert start_listener() is None
    monkeypatch.setenv(SOCKET, str(tmp_path / "missing" / "c.sock"))
    assert start_listener() is None, "a worker starts without its socket"


def test_a_celery_worker_listens_once_ready() -> None:
    connected = [receiver for _, receiver in signals.worker_ready.receivers]
    assert start_listener in connected


@pytest.mark.django_db
def test_a_lost_notice_of_a_new_process_is_made_up_for_within_seconds(
    handled: list[str], settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one sent while no Celery worker ran."""
    point_at(settings, tmp_path)
    seen = [ProgramSeen("demo-worker-0", ProcessState.RUNNING, 70, 100.0, owner="endpoint/demo")]
    found = lambda _var: programs.Supervised("boot-1", tuple(seen))  # noqa: E731
    monkeypatch.setattr(programs, "list_programs", found)
    program_watch.observe()
    handled.clear()
    program_watch.observe()
    assert handled == [], "nothing has changed"
    seen[0] = replace(seen[0], pid=71, started_at=200.0)
    program_watch.observe()
    assert handled == ["demo"]
    program_watch.observe()
    assert handled == ["demo"]
