"""Peer routers for comparison: a virtual environment and a process for each.

    .venv/bin/python -m bench.peers            # prepare .venv-peers and list what is there

A peer is the published wheel, pinned with hashes in locks/peers.txt, started by its command line
with defaults, pinned to one core and serving when `start` returns. Deviations from defaults are in
`_command` and favor the peer (quiet logs).

Requests of a peer to a worker besides the forwarded one (observed): vllm-router `/health`
and, with cache_aware, `POST .../render` then `POST /tokenize` before every request (a 404 makes it
fall back to the text); smg `/health`, `/v1/models`, `/version`, `/server_info`,
`/get_server_info`, `/model_info`, `/get_model_info`, `/loads`, `/v1/loads` (404 is accepted).
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

_ROOT = Path(__file__).resolve().parents[1]
_VENV = _ROOT / ".venv-peers"
_LOCK = _ROOT / "locks" / "peers.txt"
_STAMP = _VENV / ".ready"  # copy of the lock it was made from

VLLM_ROUTER = "vllm-router"
SMG = "smg"
VERSIONS = {VLLM_ROUTER: "0.1.17", SMG: "1.13.0"}
# Their names of the common strategies.
POLICIES = {
    VLLM_ROUTER: (
        "cache_aware",
        "kv_aware",
        "round_robin",
        "random",
        "power_of_two",
        "consistent_hash",
        "sticky_least_loaded",
    ),
    SMG: (
        "cache_aware",
        "prefix_hash",
        "round_robin",
        "random",
        "power_of_two",
        "least_load",
        "consistent_hashing",
        "manual",
        "passthrough",
    ),
}
_START_S = 60.0
_STOP_S = 2.0


def prepare() -> None:
    """Create `.venv-peers` from locks/peers.txt unless it is up to date."""
    if _STAMP.exists() and _STAMP.read_bytes() == _LOCK.read_bytes():
        return
    uv = Path(sys.executable).parent / "uv"
    print(f"preparing {_VENV.name} (pinned packages of the other routers)", file=sys.stderr)
    subprocess.run(
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, _VENV], check=True
    )
    python = _VENV / "bin" / "python"
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", _LOCK],
        check=True,
    )
    _STAMP.write_bytes(_LOCK.read_bytes())


def _command(
    name: str, policy: str, workers: Sequence[str], port: int, extra: Sequence[str]
) -> list[str]:
    if policy not in POLICIES[name]:
        raise ValueError(f"{name} has no policy {policy}: one of {', '.join(POLICIES[name])}")
    binary = str(_VENV / "bin" / name)
    quiet = "warning" if name == VLLM_ROUTER else "warn"
    return [
        *([binary] if name == VLLM_ROUTER else [binary, "launch"]),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--worker-urls", *workers),
        *("--policy", policy, "--log-level", quiet),
        # Their default port is fixed, so that two runs on one machine would collide.
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(port + 1)),
        *("--worker-startup-check-interval", "1"),
        *extra,
    ]


class Process:
    """Router process pinned to `core`; also used for ours."""

    def __init__(
        self, command: Sequence[str], port: int, core: int | None, cwd: Path = _ROOT
    ) -> None:
        self.port = port
        pin = ["taskset", "-c", str(core)] if core is not None else []
        self._name = " ".join(command[:2])
        self._process = subprocess.Popen(
            [*pin, *command],  # taskset execs the command: one process
            cwd=cwd,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self._process.pid

    def wait_until_serving(self, key: str = "") -> None:
        """Wait until it is healthy and lists its models, which come from a worker."""
        until = time.monotonic() + _START_S
        while not _answers(self.port, key):
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._name} ended with {self._process.returncode}")
            if time.monotonic() > until:
                self.stop()
                raise RuntimeError(f"{self._name} did not serve within {_START_S} s")
            time.sleep(0.1)

    def cpu_s(self) -> float:
        """Return the CPU time of all its threads."""
        # CPU clock of the process as in clock_getcpuclockid(3): more precise than ticks.
        return time.clock_gettime((~self.pid << 3) | 2)

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:  # smg waits five seconds for streams
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _answers(port: int, key: str) -> bool:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        for path in ("/health", "/v1/models"):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                return False
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def start(
    name: str,
    policy: str,
    workers: Sequence[str],
    port: int,
    core: int | None = 0,
    extra: Sequence[str] = (),
) -> Process:
    """Run a peer in front of `workers` (URLs); `port + 1` is its metrics port."""
    prepare()
    process = Process(_command(name, policy, workers, port, extra), port, core)
    process.wait_until_serving()
    return process


if __name__ == "__main__":
    prepare()
    for peer, version in VERSIONS.items():
        print(f"{peer} {version}: {', '.join(POLICIES[peer])}")
