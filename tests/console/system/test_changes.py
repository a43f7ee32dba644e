"""Announced changes reconcile their owners; a failing handler does not end the listener."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import signals
from pytest_django.fixtures import Settings

from console.processkit.changes import SOCKET, ChangeSender
from console.provisioners.local import state
from console.system import changes
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


def test_programs_without_a_handler_are_ignored(
    tmp_path: Path, settings: Settings, handled: list[str]
) -> None:
    point_at(settings, tmp_path)
    state.save(tmp_path, state.Workload("run", owner="benchmark/17"))
    changes.announce({"program/valkey", "program/run-0", "program/gone-3", "endpoint/", "noise"})
    assert handled == []


def test_the_listener_outlives_a_failing_handler(
    listener: ChangeListener, handled: list[str], tmp_path: Path
) -> None:
    sender = ChangeSender(tmp_path / "c.sock")
    assert sender.send("endpoint/broken")
    until(lambda: handled == ["broken"], what="the failing handler")
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
