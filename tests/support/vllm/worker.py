"""A real vLLM worker on the CPU, with or without the cache tier, as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cachenode import ROOT, read_metric
from tests.support.ports import free_port
from tests.support.vllm.forks import IMPORT_ENV, Fork, fork_server
from tests.support.vllm.installation import short_model_path
from tests.support.waiting import until

BLOCK_TOKENS = 32
START_DEADLINE_S = 240.0
_FLAGS = (
    "--host=127.0.0.1 --served-model-name=m --dtype=float32 --max-model-len=2048 "
    f"--block-size={BLOCK_TOKENS} --enforce-eager --enable-prompt-tokens-details "
    "--enable-scale-out --distributed-executor-backend=uni --kv-cache-memory-bytes=536870912 "
    "--shutdown-timeout=20"
).split()
_ENV = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_SERVER_DEV_MODE": "1",  # POST /reset_prefix_cache, to empty the device cache alone
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    **IMPORT_ENV,
}


@dataclass(frozen=True, slots=True)
class Completion:
    status: int
    text: str
    prompt_tokens: int
    cached_tokens: int


class Worker:
    """Starting once constructed; `wait_ready` waits until it serves."""

    def __init__(
        self,
        folder: Path,
        name: str,
        transfer: dict[str, object] | None,
        secrets: dict[str, str],
        *more: str,
        port: int = 0,
    ) -> None:
        """`transfer` None: without a cache tier. `more`: arguments of vLLM."""
        self.port = port or free_port()
        self.log = folder / f"{name}.log"
        self._place = folder / name  # vLLM puts its working folder first on the path of modules
        self._place.mkdir(exist_ok=True)
        argv = ["-m", "vllm.entrypoints.openai.api_server", *_FLAGS]
        argv += ["--port", str(self.port), "--model", str(short_model_path())]
        if transfer is not None:
            argv += ["--kv-transfer-config", json.dumps(transfer)]
        self._argv = [*argv, *more]
        self._env = {**os.environ, **_ENV, **secrets, "PYTHONPATH": str(ROOT)}
        self._env.pop("PYTHONHASHSEED", None)
        self.process = self._start()

    def _start(self) -> Fork:
        return fork_server().start(
            self._argv, env=self._env, cwd=self._place, stdout=self.log, stderr=self.log
        )

    def restart(self) -> None:
        """Start a new process with the arguments and the port of one that has ended."""
        assert self.process.poll() is not None
        self.process = self._start()

    def wait_ready(self) -> None:
        until(self._healthy, START_DEADLINE_S, f"worker ({self.log})")

    def _healthy(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(self._url("/health"), timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @property
    def url(self) -> str:
        return self._url("")

    def complete(self, prompt: str, tokens: int = 12, **more: object) -> Completion:
        """`more`: further fields of the request."""
        body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, **more}
        status, answer = self._post("/v1/completions", body)
        assert status == 200, answer
        usage = answer["usage"]
        details = usage.get("prompt_tokens_details") or {}
        return Completion(
            status,
            answer["choices"][0]["text"],
            usage["prompt_tokens"],
            details.get("cached_tokens") or 0,
        )

    def forget_device_cache(self) -> None:
        assert self._post("/reset_prefix_cache", {})[0] == 200

    def metric(self, name: str, **labels: str) -> float:
        with urllib.request.urlopen(self._url("/metrics"), timeout=30) as answer:
            return read_metric(answer.read().decode(), name, **labels)

    def cached_from(self, source: str) -> float:
        return self.metric("vllm:prompt_tokens_cached_by_source_total", source=source)

    def _post(self, path: str, body: dict[str, object]) -> tuple[int, Any]:
        request = urllib.request.Request(
            self._url(path), json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if text else {}
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def stop(self) -> None:
        """As a supervisor would: in good order if it can be."""
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=60)
