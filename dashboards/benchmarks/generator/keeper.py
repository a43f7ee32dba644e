"""Start and stop the load generator's process; idempotent, raises ProvisionError only.

Under supervisord the generator survives restarts of the console and its background worker. In a pod
it is a child of the background worker and ends with the container.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from console.processkit.files import make_private_dir
from console.provisioners import registry
from console.provisioners.base import Probe, Ref, TemporaryError, WorkloadSpec

MODULE = "dashboards.benchmarks.generator"
STOP_GRACE_S = 5
_PORT = "admin"
_RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ROOT = Path(__file__).resolve().parents[3]


def folder_of(var: Path, run: str) -> Path:
    return var / "benchmarks" / run


def list_folders(var: Path) -> list[Path]:
    try:
        return [path for path in (var / "benchmarks").iterdir() if _RUN.fullmatch(path.name)]
    except OSError:
        return []


def make_folder(var: Path, run: str) -> Path:
    folder = folder_of(var, run)
    make_private_dir(folder.parent)
    make_private_dir(folder)
    return folder


def get_hostname() -> str:
    return socket.gethostname()[:120]


class Supervised:
    """Programs of supervisord."""

    def __init__(self, var: Path) -> None:
        self._var = var
        self._provisioner = registry.get_provisioner("local", var)

    def start(self, run: str) -> None:
        argv = (sys.executable, "-m", MODULE, "--folder", str(folder_of(self._var, run)))
        self._provisioner.apply(
            WorkloadSpec(
                owner=f"benchmark/{run}",
                name=_name(run),
                role="benchmark",
                argv=(*argv, "--listen", f"{{host}}:{{port:{_PORT}}}"),
                ports=(_PORT,),
                probe=Probe("/healthz", _PORT),
                env={"PYTHONPATH": str(_ROOT)},
                stop_grace_s=STOP_GRACE_S,
            )
        )

    def stop(self, run: str) -> None:
        """Request the end; `gone` reports it."""
        self._provisioner.delete(self._ref(run))

    def gone(self, run: str) -> bool:
        return not self._provisioner.observe(self._ref(run)).exists

    def last_words(self, run: str) -> str:
        """Return the end of its log, "" without one."""
        return "\n".join(self._provisioner.logs(self._ref(run), 5).values()).strip()

    def _ref(self, run: str) -> Ref:
        return Ref(self._provisioner.name, _name(run))


# Children of this process must be polled after exit, or they stay zombies.
_children: dict[str, subprocess.Popen[bytes]] = {}
# Prevents two concurrent passes from both starting a missing process.
_starting = threading.Lock()


class Children:
    """Child processes, identified by a pid file."""

    def __init__(self, var: Path) -> None:
        self._var = var

    def start(self, run: str) -> None:
        with _starting:
            if self.gone(run):
                self._start(run)

    def _start(self, run: str) -> None:
        folder = folder_of(self._var, run)
        argv = [sys.executable, "-m", MODULE, "--folder", str(folder)]
        try:
            with (folder / "log.txt").open("ab") as log:
                child = subprocess.Popen(
                    argv,
                    cwd=_ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise TemporaryError("GeneratorNotStarted", f"{error}") from error
        _children[run] = child
        (folder / "pid").write_text(str(child.pid))

    def stop(self, run: str) -> None:
        pid = self._pid(run)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def gone(self, run: str) -> bool:
        return not self._pid(run)

    def last_words(self, run: str) -> str:
        try:
            text = (folder_of(self._var, run) / "log.txt").read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-5:]).strip()

    def _pid(self, run: str) -> int:
        """Return 0 after its end. Pids are reused, so the command line must name the run, too."""
        child = _children.get(run)
        if child is not None:
            if child.poll() is None:
                return child.pid
            del _children[run]
            return 0
        try:
            pid = int((folder_of(self._var, run) / "pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return 0
        return pid if run.encode() in command else 0


def _name(run: str) -> str:
    return f"bench-{run.replace('-', '')[:16]}"


Keeper = Supervised | Children


def make_keeper(provisioner: str, var: Path) -> Keeper:
    return Supervised(var) if provisioner == "local" else Children(var)
