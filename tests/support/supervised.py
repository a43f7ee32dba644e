"""supervisord for a test, with its own folder."""

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
        """`mounted`: mount options of a tmpfs for the folder; needs root."""
        # Short path: a unix socket path is limited to 107 bytes.
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
        """Stop like `make down`: every program, then supervisord."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.process = None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)
        self.process = None

    def processes(self) -> list[int]:
        """Return all live processes started in this folder."""
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
        """Kill all processes; graceful stops would dominate the test time and have their own
        tests."""
        if self.process is not None:
            # Processes without our launcher outlive supervisord.
            programs = psutil.Process(self.process.pid).children(recursive=True)
            self.kill()
            for program in programs:
                with contextlib.suppress(psutil.NoSuchProcess):
                    program.kill()
        until(self._none_left, what="nothing alive under the test's folder")
        if self._mounted:
            subprocess.run(["umount", "-l", self.var], check=True)  # one may still be closing
        shutil.rmtree(self.var)

    def _none_left(self) -> bool:
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left
