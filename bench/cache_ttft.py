"""TTFT of one long prompt: cold, from L1, from our L2 and from Valkey as L2, on real vLLM.

`python -m bench.cache_ttft [--tokens 800 1800] [--repeats 5] [--backends tcp shm valkey]`. Two
workers (CPU build, SmolLM2-135M) for each backend; worker A computes, worker B has not seen the
prompt. All runs share one machine, prompts are random, and each response must equal the cold greedy
text, else the run fails. Prints a table, ratios to cold, and worker B's lookup and load times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from cachetier.vllm_connector.settings import L2Target, kv_transfer_config
from console.launcher.layout import ROOT, default_layout
from console.launcher.tools import valkey_server

L1_BYTES = 512 * 1024**2
L2_SIZE = "2GiB"
WORDS = [
    "cache",
    "prefix",
    "river",
    "stone",
    "light",
    "engine",
    "winter",
    "paper",
    "market",
    "tree",
]


@dataclass
class Samples:
    """TTFT in seconds, by cache tier."""

    cold: list[float] = field(default_factory=list)
    l1: list[float] = field(default_factory=list)
    l2: list[float] = field(default_factory=list)
    lookup_s: list[float] = field(default_factory=list)  # L2 lookup time
    load_s: list[float] = field(default_factory=list)  # time from L2 to L1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(argv: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a child in its own process group, which is killed at the end."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            argv, env=os.environ | env, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def wait_http(url: str, child: subprocess.Popen[bytes], log: Path, deadline_s: float = 600) -> None:
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=2).status_code == 200:
                return
        if child.poll() is not None:
            break
        time.sleep(0.3)
    sys.exit(f"{url} does not answer:\n" + log.read_text(errors="replace")[-3000:])


@contextlib.contextmanager
def worker(url: str, folder: Path, name: str, *more: str) -> Iterator[str]:
    """Run a vLLM worker with L1 and the given L2, "" for neither, and `more` flags; yield its
    URL.
    """
    layout = default_layout()
    port = free_port()
    argv = [
        str(layout.vllm_python),
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--model",
        str(layout.model),
        "--served-model-name",
        "bench",
        "--dtype",
        "float32",
        "--max-model-len",
        "2048",
        "--block-size",
        "32",
        "--enforce-eager",
        "--enable-prompt-tokens-details",
        *(_transfer(url) if url else ()),
        *more,
    ]
    env = {
        "PYTHONPATH": str(ROOT),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "PYTHONDONTWRITEBYTECODE": "",
    }
    log = folder / f"{name}.log"
    with process(argv, env, log) as child:
        wait_http(f"http://127.0.0.1:{port}/health", child, log)
        yield f"http://127.0.0.1:{port}"


def _transfer(url: str) -> tuple[str, str]:
    transfer = kv_transfer_config(
        l1_bytes=L1_BYTES,
        policy="lru",
        l2=L2Target(url=url, model_id="bench-smollm2", ttl_s=3600),
        platform="cpu",
    )
    return "--kv-transfer-config", json.dumps(transfer)


@contextlib.contextmanager
def l2_engine_shm(folder: Path) -> Iterator[str]:
    with l2_engine(folder, "--shm", f"emberline-bench-{os.getpid()}") as url:
        yield url


@contextlib.contextmanager
def l2_engine(folder: Path, *more: str) -> Iterator[str]:
    port, admin = free_port(), free_port()
    log = folder / "l2.log"
    argv = [
        sys.executable,
        "-m",
        "cachetier.engine",
        "--listen",
        f"127.0.0.1:{port}",
        "--memory",
        L2_SIZE,
        "--admin",
        f"127.0.0.1:{admin}",
        *more,
    ]
    with process(argv, {}, log) as child:
        wait_http(f"http://127.0.0.1:{admin}/healthz", child, log)
        yield f"redis://127.0.0.1:{port}/0"


@contextlib.contextmanager
def l2_valkey(folder: Path) -> Iterator[str]:
    port = free_port()
    log = folder / "valkey.log"
    argv = [
        str(valkey_server()),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--maxmemory",
        "2gb",
        "--maxmemory-policy",
        "allkeys-lru",
    ]
    with process(argv, {}, log):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"redis://127.0.0.1:{port}/0"


def prompt(tokens: int) -> str:
    """Return a new prompt of about that many tokens."""
    nonce = f"{random.getrandbits(64):x}"
    return f"Document {nonce}. " + " ".join(random.choice(WORDS) for _ in range(tokens - 20))


def ask(url: str, text: str, tokens: int = 16) -> tuple[float, str]:
    """Return TTFT (s) and the greedy text."""
    body = {
        "model": "bench",
        "prompt": text,
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
    }
    started = time.perf_counter()
    first = 0.0
    answer = ""
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=120) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                first = first or time.perf_counter() - started
                answer += json.loads(line[6:])["choices"][0]["text"]
    return first, answer


def metric(url: str, name: str, label: str) -> float:
    text = httpx.get(f"{url}/metrics", timeout=5).text
    found = re.findall(rf"^{re.escape(name)}\{{[^}}]*{label}[^}}]*\}} (\S+)", text, re.M)
    return sum(float(value) for value in found)


@dataclass(frozen=True)
class L2Reads:
    """Totals that a worker has read from L2."""

    tokens: float
    lookup_s: float
    load_s: float

    @classmethod
    def by(cls, url: str) -> L2Reads:
        return cls(
            metric(url, "vllm:prompt_tokens_cached_by_source_total", 'source="disk"'),
            _longest_lookup(url),
            metric(url, "vllm:kv_offload_tiering_read_time_total", 'tier="1:'),
        )


def _longest_lookup(url: str) -> float:
    """Return the mean over the blocks: one batch, so each block waits for the whole batch."""
    name = "vllm:kv_offload_tiering_lookup_async_delay_seconds"
    return metric(url, f"{name}_sum", 'tier="1:') / max(metric(url, f"{name}_count", 'tier="1:'), 1)


def written_chunks(url: str) -> float:
    return metric(url, "vllm:kv_offload_tiering_write_bytes_total", 'tier="1:')


def settle(url: str) -> None:
    """Wait until the worker's stores to L2 stop growing."""
    last, same = -1.0, 0
    end = time.monotonic() + 20
    while same < 3 and time.monotonic() < end:
        now = written_chunks(url)
        same = same + 1 if now == last else 0
        last = now
        time.sleep(0.3)


def measure(a: str, b: str, tokens: int, repeats: int) -> Samples:
    samples = Samples()
    for _ in range(repeats):
        text = prompt(tokens)
        cold, expected = ask(a, text)
        settle(a)
        httpx.post(f"{a}/reset_prefix_cache", timeout=20).raise_for_status()
        l1, warm = ask(a, text)
        before = L2Reads.by(b)
        l2, other = ask(b, text)
        after = L2Reads.by(b)
        if not expected == warm == other:
            sys.exit(f"the text differs: {expected!r} {warm!r} {other!r}")
        if after.tokens <= before.tokens:
            sys.exit("worker B took nothing from L2")
        samples.cold.append(cold)
        samples.l1.append(l1)
        samples.l2.append(l2)
        samples.lookup_s.append(after.lookup_s)
        samples.load_s.append(after.load_s - before.load_s)
    return samples


BACKENDS = {"tcp": l2_engine, "shm": l2_engine_shm, "valkey": l2_valkey}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[800, 1800])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=list(BACKENDS))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="emberline-bench-"))
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, logs in {folder}")
    print(f"TTFT in seconds, median (min) of {options.repeats} prompts; of L2: lookup and load\n")
    columns = ("cold", "L1 hit", "L2 hit", "lookup", "load", "L2 / cold")
    print(f"{'L2':8}{'tokens':>7}" + "".join(f"{name:>15}" for name in columns))
    for name in options.backends:
        with (
            BACKENDS[name](folder) as url,
            worker(url, folder, f"{name}-a") as a,
            worker(url, folder, f"{name}-b") as b,
        ):
            for one in (a, b):
                ask(one, prompt(64))  # first request of a process: imports, thread pools
            for tokens in options.tokens:
                show(name, tokens, measure(a, b, tokens, options.repeats))


def show(name: str, tokens: int, found: Samples) -> None:
    cells = [
        f"{statistics.median(s):.3f} ({min(s):.2f})"
        for s in (found.cold, found.l1, found.l2, found.lookup_s, found.load_s)
    ]
    ratio = statistics.median(found.l2) / statistics.median(found.cold)
    row = "".join(f"{cell:>15}" for cell in (*cells, f"{ratio:.3f}"))
    print(f"{name:8}{tokens:>7}{row}", flush=True)


if __name__ == "__main__":
    main()
