from __future__ import annotations

import dataclasses
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from console.provisioners.local import programs
from console.provisioners.local.programs import ProgramSeen
from console.provisioners.local.rpc import ProcessState, Supervisor
from console.provisioners.local.supervisord import Program, include_dir, render_program, socket_path
from tests.support.people import Cast, cast
from tests.support.supervised import Supervised
from tests.support.waiting import until

IDLE = (sys.executable, "-S", "-c", "import signal; print('idle', flush=True); signal.pause()")


class Rig:
    """A supervisord of the test's own, in which `valkey` does nothing but live."""

    def __init__(self, supervised: Supervised) -> None:
        self.supervised = supervised
        self.var = supervised.var

    def add(self, name: str, argv: tuple[str, ...] = IDLE, start_secs: int = 0) -> None:
        """Before supervisord starts. With 0 it is restarted at once when it exits."""
        text = render_program(self.var, Program(name, argv, start_secs=start_secs), self.var)
        (include_dir(self.var) / f"{name}.conf").write_text(text)

    def seen(self, name: str = "valkey") -> ProgramSeen:
        return {p.name: p for p in programs.list_programs(self.var).programs}[name]

    def running(self, name: str = "valkey", other_than: int = 0) -> ProgramSeen:
        def runs() -> ProgramSeen | None:
            found = self.seen(name)
            up = found.state is ProcessState.RUNNING and found.pid != other_than
            return found if up else None

        return until(runs, what=f"{name} runs")

    def stop(self, supervisor: Supervisor, name: str = "valkey") -> None:
        """Stop by hand. One TERM alone is lost on a process that has only just been forked."""
        supervisor.stop(name)

        def has_stopped() -> bool:
            supervisor.stop_again(name)
            return self.seen(name).pid == 0

        until(has_stopped, what=f"{name} stopped")

    def stop_all(self) -> None:
        """Stop the program, then supervisord, whose one TERM may be lost like any other."""
        self.stop(Supervisor(socket_path(self.var)))
        self.supervised.stop()

    def kill(self, name: str = "valkey") -> ProgramSeen:
        """kill -9, and what runs afterwards."""
        pid = self.running(name).pid
        os.kill(pid, signal.SIGKILL)
        return self.running(name, other_than=pid)


@pytest.fixture
def supervised_programs(settings: Settings) -> Iterator[Rig]:
    supervised = Supervised()
    try:
        found = Rig(supervised)
        point_at(settings, supervised.var)
        found.add("valkey")
        supervised.start()
        found.running()
        yield found
    finally:
        supervised.close()


def point_at(settings: Settings, var: Path, provisioner: str = "local") -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, var=var, provisioner=provisioner)


@pytest.fixture
def people(db: None) -> Cast:
    return cast()
