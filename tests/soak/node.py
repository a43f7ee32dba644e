"""Node under test: start, kill, query."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.waiting import until

PASSWORD = "soak"
START_S = 60.0


class Node:
    """`python -m cachetier.engine` on its own ports, with the same flags after each restart."""

    def __init__(self, folder: Path, ports: tuple[int, int], flags: Sequence[str]) -> None:
        self.port, self.admin_port = ports
        self.folder = folder
        self.log = folder / "node.log"
        secret = folder / "password"
        secret.write_text(PASSWORD)
        self._argv = [sys.executable, "-m", "cachetier.engine", "--password-file", str(secret)]
        self._argv += ["--listen", f"127.0.0.1:{self.port}"]
        self._argv += ["--admin", f"127.0.0.1:{self.admin_port}", *flags]
        self.restarts = -1
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._argv, stdout=log, stderr=log)
        self.restarts += 1
        until(self._answers, START_S, "the node answers")

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the node ended:\n{self.log.read_text()[-2000:]}")
        try:
            self.get("/readyz")
        except OSError:
            return False
        return True

    def stop(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=30)

    def ended_with(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        try:
            return self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return None

    def get(self, path: str) -> bytes:
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bytes(answer.read())

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/stats"))
        return found

    def order(self, path: str) -> int:
        """Return the HTTP status; 409: the node cannot do it now."""
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        request = urllib.request.Request(url, method="POST")
        request.add_header("Authorization", f"Bearer {PASSWORD}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as exc:
            exc.close()
            return exc.code

    def resident_bytes(self) -> int:
        """Return resident memory without shared file pages (the shared arena counts by its
        capacity).
        """
        words = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))
