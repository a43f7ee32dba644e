"""Simulated worker process on a free port, and a blocking client."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.cachenode import ROOT, read_metric
from tests.support.ports import free_port
from tests.support.waiting import until


class SimulatedWorker:
    """Default speed 1000: a prompt token takes 6 microseconds."""

    def __init__(self, folder: Path, *flags: str, password: str = "", speed: float = 1000) -> None:
        self.port = free_port()
        self.log = folder / f"simulated-{self.port}.log"
        argv = [sys.executable, "-m", "endpoints.simulated_worker"]
        argv += ["--listen", f"127.0.0.1:{self.port}", "--model", "demo,smol"]
        env = {**os.environ, "EMBERLINE_L2_PASSWORD": password}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*argv, "--speed", str(speed), *flags], cwd=ROOT, env=env, stdout=log, stderr=log
            )
        until(self._serves, what="simulated worker")

    def _serves(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def get(self, path: str) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        connection = self.connect()
        try:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def complete(self, prompt: str | list[int], max_tokens: int = 1, **more: Any) -> Any:
        body = {"prompt": prompt, "max_tokens": max_tokens, **more}
        status, answer = self.post("/v1/completions", body)
        assert status == 200, answer
        return answer

    def cached(self, prompt: str | list[int], **more: Any) -> int:
        usage = self.complete(prompt, **more)["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    def stream(self, path: str, body: Any) -> Iterator[str]:
        """Yield the data of each event."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}).encode())
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer:
                if line.startswith(b"data: "):
                    yield line[6:].decode().rstrip("\n")
        finally:
            connection.close()

    def metric(self, name: str, **labels: str) -> float:
        return read_metric(self.get("/metrics")[1].decode(), name, **labels)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
