"""The test suite's check for leftover child processes (tests/support/child_processes.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.support.child_processes import ChildProcesses, children, command, runs
from tests.support.waiting import until

ORPHAN = (
    "import subprocess;"
    "print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3).pid)"
)


def test_orphan_is_named_with_the_test_that_started_it() -> None:
    found = ChildProcesses()
    found.adopt_orphans()
    found.note("before")
    done = subprocess.run([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, check=True)
    pid = int(done.stdout)
    try:
        until(lambda: pid in children(), what="the orphan is a child of this process")
        until(lambda: command(pid) == "sleep 600", what="the orphan is started")
        found.note("test_a")
        found.note("test_b")
        reported = [line for line in found.left_behind(grace_s=0) if line.startswith(f"pid {pid} ")]
        assert reported == [f"pid {pid} (sleep 600), started by test_a"]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert not runs(pid)


def test_zombie_is_reaped() -> None:
    process = subprocess.Popen(["true"])
    until(lambda: not runs(process.pid), what="the child ended")
    assert process.pid in children()
    left = ChildProcesses().left_behind(grace_s=0)
    assert not [line for line in left if line.startswith(f"pid {process.pid} ")]
    process.wait()
