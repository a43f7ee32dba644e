"""Crashes under a real supervisord are recorded once; intended stops are not."""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from console.audit.models import AuditEvent
from console.launcher.layout import Layout, write_facts
from console.launcher.processes import Services
from console.launcher.processes import service_programs as fixed_programs
from console.provisioners.base import Probe, TemporaryError, WorkloadSpec
from console.provisioners.local import hung, programs
from console.provisioners.local.provisioner import LocalProvisioner
from console.provisioners.local.rpc import Supervisor
from console.provisioners.local.supervisord import log_path, socket_path
from console.system import program_watch, selectors, tasks
from console.system.models import ProcessSeen
from tests.console.system.conftest import IDLE, Rig, point_at
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


def list_crash_events() -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(verb=program_watch.VERB).order_by("pk"))


def test_killed_program_is_recorded_once(
    supervised_programs: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    before = supervised_programs.seen()
    program_watch.observe()
    assert list_crash_events() == []

    after = supervised_programs.kill()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            program_watch.observe()

    (event,) = list_crash_events()
    assert (event.actor_name, event.target) == ("system", "process/valkey")
    assert event.changes["pid"] == [before.pid, after.pid]
    assert event.changes["ended"] == "terminated by SIGKILL"
    row = ProcessSeen.objects.get()
    assert (row.pid, row.restarts) == (after.pid, 1)
    assert row.last_restart_at == row.started_at == program_watch.as_datetime(after.started_at)
    (line,) = [r for r in caplog.records if r.name == "console.system.program_watch"]
    assert (line.levelname, line.getMessage()) == (
        "WARNING",
        f"valkey crashed (terminated by SIGKILL) and was restarted as pid {after.pid}",
    )


def test_each_crash_is_one_line(supervised_programs: Rig) -> None:
    program_watch.observe()
    for _ in range(3):
        supervised_programs.kill()
        program_watch.observe()
    assert len(list_crash_events()) == 3
    assert ProcessSeen.objects.get().restarts == 3


def test_concurrent_observers_record_one_crash(
    supervised_programs: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read what was remembered and seen the new process before either writes."""
    program_watch.observe()
    supervised_programs.kill()
    meet = threading.Barrier(2, timeout=60)
    real = programs.list_programs

    def together(var: object) -> object:
        found = real(var)  # type: ignore[arg-type]
        meet.wait()
        return found

    monkeypatch.setattr(programs, "list_programs", together)

    def looker() -> None:
        try:
            program_watch.observe()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        for call in [pool.submit(looker) for _ in range(2)]:
            call.result(60)
    assert len(list_crash_events()) == 1
    assert ProcessSeen.objects.get().restarts == 1


def test_slow_observer_does_not_revert_newer_records(
    supervised_programs: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it sleeps over what it saw, another one records that death and the next."""
    program_watch.observe()
    supervised_programs.kill()
    real = programs.list_programs
    old = real(supervised_programs.var)

    def late(_var: object) -> object:
        monkeypatch.setattr(programs, "list_programs", real)
        program_watch.observe()
        supervised_programs.kill()
        program_watch.observe()
        return old

    monkeypatch.setattr(programs, "list_programs", late)
    program_watch.observe()
    assert len(list_crash_events()) == 2
    assert ProcessSeen.objects.get().pid == supervised_programs.seen().pid
    program_watch.observe()
    assert len(list_crash_events()) == 2


def test_failed_audit_keeps_the_crash_pending(
    supervised_programs: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted observation leaves the exit to the next one."""
    program_watch.observe()
    supervised_programs.kill()

    def die(*_: object, **__: object) -> None:
        raise RuntimeError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(program_watch, "record", die)
        with pytest.raises(RuntimeError):
            program_watch.observe()
    program_watch.observe()
    assert len(list_crash_events()) == 1


def test_new_supervisord_is_no_crash(supervised_programs: Rig) -> None:
    program_watch.observe()
    before = supervised_programs.seen()
    supervised_programs.stop_all()
    with pytest.raises(TemporaryError):
        tasks.observe_programs.run()
    supervised_programs.supervised.start()
    after = supervised_programs.running()
    assert after.pid != before.pid
    program_watch.observe()
    assert list_crash_events() == []
    supervised_programs.kill()
    program_watch.observe()
    assert len(list_crash_events()) == 1, "the next one is seen again"


def test_restarted_supervisord_is_no_crash_of_its_programs(supervised_programs: Rig) -> None:
    """It reports no exit; only its new process id shows the restart."""
    program_watch.observe()
    before = supervised_programs.seen()
    supervised_programs.supervised.kill()
    os.kill(before.pid, signal.SIGKILL)
    supervised_programs.supervised.start()
    assert supervised_programs.running().pid != before.pid
    program_watch.observe()
    assert list_crash_events() == []


def test_unavailable_supervisord_is_an_outcome(
    supervised_programs: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be unavailable for hours, with a query every few seconds."""
    supervised_programs.stop_all()
    with caplog.at_level(logging.INFO):
        result = tasks.observe_programs.apply()
    assert isinstance(result.result, TemporaryError)
    assert result.result.reason == "SupervisorUnavailable"
    assert [r.getMessage() for r in caplog.records if r.levelno > logging.INFO] == []


def test_supervisord_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(TemporaryError("Busy", "Ports are scarce.", delay_s=3.0)))
    assert (error.reason, str(error), error.delay_s) == ("Busy", "Ports are scarce.", 3.0)


def test_manual_restart_is_no_crash(supervised_programs: Rig) -> None:
    program_watch.observe()
    supervisor = Supervisor(socket_path(supervised_programs.var))
    supervised_programs.stop(supervisor)
    program_watch.observe()
    assert supervisor.remove("valkey")
    supervisor.add("valkey")
    supervised_programs.running()
    program_watch.observe()
    assert list_crash_events() == []
    assert ProcessSeen.objects.get().restarts == 0


def test_workload_program_is_counted_and_reported_by_its_owner(supervised_programs: Rig) -> None:
    """A death counts; a rollout, which replaces the process on purpose, does not."""
    provisioner = LocalProvisioner(supervised_programs.var)

    def spec(revision: str) -> WorkloadSpec:
        return WorkloadSpec(
            owner="endpoint/demo",
            name="demo-worker",
            role="worker",
            argv=IDLE,
            ports=("http",),
            probe=Probe("/health", "http"),
            env={"REVISION": revision},
            stop_grace_s=5,
        )

    def pid() -> int:
        found = {p.name: p for p in programs.list_programs(supervised_programs.var).programs}.get(
            "demo-worker-0"
        )
        return found.pid if found and "signal.pause" in command(found.pid) else 0

    def command(number: int) -> str:
        try:
            return Path(f"/proc/{number}/cmdline").read_text()
        except OSError:
            return ""

    provisioner.apply(spec("1"))
    first = until(pid)
    program_watch.observe()
    os.kill(first, signal.SIGKILL)
    second = until(lambda: pid() not in (0, first) and pid())
    program_watch.observe()
    row = ProcessSeen.objects.get(name="demo-worker-0")
    assert (row.restarts, row.pid) == (1, second)
    assert row.last_restart_at is not None

    def rolled_out() -> bool:
        provisioner.apply(spec("2"))
        return pid() not in (0, second)

    until(rolled_out)
    program_watch.observe()
    row.refresh_from_db()
    assert (row.restarts, row.pid) == (1, pid())
    assert list_crash_events() == [], "the endpoint's events tell it"
    shown = {p.name: p for p in selectors.load_system().processes}["demo-worker-0"]
    assert shown.purpose == "Worker of endpoint demo"


def test_removed_program_is_forgotten(supervised_programs: Rig) -> None:
    program_watch.observe()
    supervisor = Supervisor(socket_path(supervised_programs.var))
    supervised_programs.stop(supervisor)
    assert supervisor.remove("valkey")
    program_watch.observe()
    assert not ProcessSeen.objects.exists()
    assert list_crash_events() == []


def test_no_observation_without_managed_programs(
    supervised_programs: Rig, settings: Settings
) -> None:
    point_at(settings, supervised_programs.var, provisioner="fake")
    program_watch.observe()
    assert not ProcessSeen.objects.exists()


def test_every_fixed_program_has_a_description(supervised_programs: Rig) -> None:
    layout = Layout(supervised_programs.var)
    write_facts(layout, prometheus_port=1, alertmanager_port=2)
    binary = supervised_programs.var / "x"
    services = Services("127.0.0.1", 8000, "vllm", binary, binary, binary)
    assert {p.name for p in fixed_programs(layout, services)} == set(selectors.PURPOSES)


SILENT = (
    "import socket, sys; listening = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
    "print('listening', flush=True); accepted = [listening.accept() for _ in range(1000)]"
)


def test_web_process_that_does_not_respond_is_killed(
    supervised_programs: Rig, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, host="0.0.0.0", port=port)
    monkeypatch.setattr(program_watch, "_PROBE_S", 0.2)
    supervised_programs.add("web", (sys.executable, "-S", "-c", SILENT, str(port)))
    supervisor = Supervisor(socket_path(supervised_programs.var))
    supervisor.reread()
    supervisor.add("web")
    silent = supervised_programs.running("web")
    log = log_path(supervised_programs.var, "web")
    until(lambda: "listening" in log.read_text(), what="web listens")
    program_watch.observe()
    assert supervised_programs.seen("web").pid == silent.pid, "it may respond again"
    monkeypatch.setitem(hung.HUNG_S, "web", 0.0)
    program_watch.observe()
    supervised_programs.running("web", other_than=silent.pid)
    program_watch.observe()
    (event,) = list_crash_events()
    assert (event.target, event.changes["ended"]) == ("process/web", "terminated by SIGKILL")


def test_web_process_that_responds_is_left_alone(
    supervised_programs: Rig, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(hung.HUNG_S, "web", 0.0)
    supervised_programs.add("web")
    supervisor = Supervisor(socket_path(supervised_programs.var))
    supervisor.reread()
    supervisor.add("web")
    running = supervised_programs.running("web")
    for host in ("127.0.0.1", "::1"):  # nothing listens there: it starts, or listens elsewhere
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, host=host, port=free_port())
        program_watch.observe()
    assert supervised_programs.seen("web").pid == running.pid
