"""A real vLLM worker on the CPU, with the cache tier on, as a process of its own.

Which vLLM: EMBERLINE_VLLM_PYTHON (default .venv-vllm/bin/python) and EMBERLINE_MODEL (default
var/models/smollm2-135m-instruct); both are made by `make vllm`.
"""

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

import pytest

from tests.support.cachenode import ROOT, read_metric
from tests.support.ports import free_port
from tests.support.waiting import until

BLOCK_TOKENS = 32
START_DEADLINE_S = 240.0
_FLAGS = (
    "--host=127.0.0.1 --served-model-name=m --dtype=float32 --max-model-len=2048 "
    f"--block-size={BLOCK_TOKENS} --enforce-eager --enable-prompt-tokens-details "
    "--distributed-executor-backend=uni --kv-cache-memory-bytes=536870912 --shutdown-timeout=20"
).split()
_ENV = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_SERVER_DEV_MODE": "1",  # POST /reset_prefix_cache, to empty the device cache alone
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def vllm_python() -> Path:
    """Fails, and does not skip, without vLLM: a proof that was not run is not a proof."""
    if os.environ.get("EMBERLINE_TEST_WORKERS") == "simulated":  # see tests/settings.py
        pytest.skip("WORKERS=simulated: real vLLM was ruled out by the caller")
    default = ROOT / ".venv-vllm" / "bin" / "python"
    python = Path(os.environ.get("EMBERLINE_VLLM_PYTHON", default))
    if not python.exists():
        pytest.fail(f"no vLLM at {python}: run `make vllm` (or say WORKERS=simulated)")
    return python


def model_path() -> Path:
    default = ROOT / "var" / "models" / "smollm2-135m-instruct"
    model = Path(os.environ.get("EMBERLINE_MODEL", default))
    if not (model / "config.json").exists():
        pytest.fail(f"no model at {model}: run `make vllm` (or say WORKERS=simulated)")
    return model


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
        place = folder / name  # vLLM puts its working folder first on the path of modules
        place.mkdir(exist_ok=True)
        argv = [str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server", *_FLAGS]
        argv += ["--port", str(self.port), "--model", str(model_path())]
        if transfer is not None:
            argv += ["--kv-transfer-config", json.dumps(transfer)]
        argv += more
        env = {**os.environ, **_ENV, **secrets, "PYTHONPATH": str(ROOT)}
        env.pop("PYTHONHASHSEED", None)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, cwd=place, env=env, stdout=log, stderr=log, start_new_session=True
            )

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

    def complete(self, prompt: str, tokens: int = 24) -> Completion:
        body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
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
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)
