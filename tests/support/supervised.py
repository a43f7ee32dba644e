"""A supervisord of the test's own, over a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil

from console.processkit import leftovers
from console.processkit.files import make_private_dir
from console.provisioners.base import TemporaryError
from console.provisioners.local.rpc import Supervisor
from console.provisioners.local.supervisord import (
    command,
    include_dir,
    log_path,
    render_config,
    socket_path,
)
from tests.support.waiting import until


class Supervised:
    def __init__(self, mounted: str = "") -> None:
        """`mounted`: options of a file system in memory to lie on; needs root."""
        # Short: a unix socket's path has 107 bytes at most.
        self.var = Path(tempfile.mkdtemp(prefix="emb-", dir="/tmp")).resolve()
        self.process: subprocess.Popen[bytes] | None = None
        self._mounted = bool(mounted)
        if mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", mounted, "tmpfs", self.var], check=True)
        for folder in (include_dir(self.var), log_path(self.var, "x").parent):
            folder.mkdir(parents=True)
        make_private_dir(socket_path(self.var).parent)
        (self.var / "supervisor" / "supervisord.conf").write_text(
            render_config(self.var, [], self.var)
        )

    def start(self) -> None:
        config = self.var / "supervisor" / "supervisord.conf"
        with (log_path(self.var, "supervisord").with_suffix(".out")).open("ab") as output:
            self.process = subprocess.Popen(
                command(config),
                stdout=output,
                stderr=output,
                env={**os.environ, "DATABASE_URL": "postgres://user:hidden@db/x"},
            )
        until(self.answers, what="supervisord")

    def answers(self) -> bool:
        try:
            Supervisor(socket_path(self.var)).all()
        except TemporaryError:
            return False
        return True

    def stop(self) -> None:
        """As `make down` does: every program is asked to end, then supervisord ends."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.process = None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)
        self.process = None

    def processes(self) -> list[int]:
        """Everything alive that was started under this folder, helpers included."""
        marked = f"{leftovers.MARK}={self.var}/".encode()
        found = []
        for process in leftovers.processes():
            try:
                environ = Path(f"/proc/{process.pid}/environ").read_bytes()
            except OSError:
                continue
            if marked in environ and not process.is_zombie:
                found.append(process.pid)
        return found

    def close(self) -> None:
        """Whatever the test did, nothing of it is left. Nothing is asked to end: how that goes is
        for tests to try, and a polite end of each would take half of their time."""
        if self.process is not None:
            # Those without a launcher of ours live on without their supervisord.
            programs = psutil.Process(self.process.pid).children(recursive=True)
            self.kill()
            for program in programs:
                with contextlib.suppress(psutil.NoSuchProcess):
                    program.kill()
        until(self._none_left, what="nothing alive under the test's folder")
        if self._mounted:
            subprocess.run(["umount", self.var], check=True)
        shutil.rmtree(self.var)

    def _none_left(self) -> bool:
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left
