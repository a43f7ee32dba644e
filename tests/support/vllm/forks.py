"""Programs of vLLM's environment, run in forks of a process that has vLLM imported.

One server for the test process, started at its first use; see fork_server.py.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.vllm.installation import vllm_python

IMPORT_DEADLINE_S = 180.0
_NO_FILE = "/dev/null"
# Read when torch and vLLM are imported: a fork cannot change them.
IMPORT_ENV = {
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # else the first request for logprobs compiles C++ for 15 s
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


class Fork:
    """A program started by the server; the methods are those of subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def ended(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    def __init__(self) -> None:
        self.log = Path(tempfile.mkstemp(prefix="emberline-fork-server-", suffix=".log")[1])
        ours, theirs = socket.socketpair()
        env = {**os.environ, **IMPORT_ENV}
        env.pop("PYTHONHASHSEED", None)
        program = Path(__file__).with_name("fork_server.py")
        with self.log.open("ab") as log, theirs:
            self._process = subprocess.Popen(
                [str(vllm_python()), "-P", str(program), str(theirs.fileno())],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the tests
            )
        self._channel = ours
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._forks: dict[int, Fork] = {}  # by pid
        self._answered: dict[int, Fork] = {}  # by the number of the request
        threading.Thread(target=self._read, name="fork-server", daemon=True).start()

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | str,
        stdin: Path | str = _NO_FILE,
        stdout: Path | str,
        stderr: Path | str,
    ) -> Fork:
        number = next(self._numbers)
        request = {"id": number, "argv": list(argv), "env": dict(env), "cwd": str(cwd)}
        request |= {"stdin": str(stdin), "stdout": str(stdout), "stderr": str(stderr)}
        self._channel.sendall(json.dumps(request).encode() + b"\n")
        with self._changed:
            self._changed.wait_for(
                lambda: number in self._answered or self._process.poll() is not None,
                IMPORT_DEADLINE_S,
            )
            assert number in self._answered, self.log.read_text()[-3000:]
            return self._answered.pop(number)

    def _read(self) -> None:
        with self._channel.makefile("rb") as lines:
            for line in lines:
                answer = json.loads(line)
                with self._changed:
                    if "id" in answer:
                        fork = self._forks[answer["pid"]] = Fork(answer["pid"])
                        self._answered[answer["id"]] = fork
                    else:
                        self._forks.pop(answer["pid"]).ended(answer["code"])
                    self._changed.notify_all()
        with self._changed:
            for fork in self._forks.values():
                fork.ended(-signal.SIGKILL)
            self._process.wait(60)
            self._changed.notify_all()

    def close(self) -> None:
        """Kill what still runs."""
        atexit.unregister(self.close)
        self._channel.shutdown(socket.SHUT_RDWR)
        self._process.wait(60)
        self.log.unlink(missing_ok=True)


@functools.cache
def fork_server() -> ForkServer:
    server = ForkServer()
    atexit.register(server.close)
    return server


def run_vllm_python(
    *argv: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | str = "/",
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with vLLM's interpreter, its output captured."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("in", "out", "err")]
        files[0].write_bytes(stdin)
        fork = fork_server().start(
            argv,
            env={**os.environ, **IMPORT_ENV, **(env or {})},
            cwd=cwd,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
        )
        try:
            code = fork.wait(timeout)
        except subprocess.TimeoutExpired:
            fork.kill()
            raise
        return subprocess.CompletedProcess(argv, code, files[1].read_text(), files[2].read_text())


def close_fork_server() -> None:
    """End the server, if one was started, and everything it started."""
    if fork_server.cache_info().currsize:
        fork_server().close()
