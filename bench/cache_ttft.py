"""TTFT of one long prompt: cold, from L1, from our L2 and from Valkey as L2, on real vLLM.

`python -m bench.cache_ttft [--tokens 800] [--repeats 5]`. Two workers (CPU build, SmolLM2-135M)
a backend; worker A computes, worker B has never seen the prompt. Both backends are measured in one
run on the same machine, prompts are fresh and random, and every answer must be the same greedy
text as the cold one, else the run fails. Prints a table and the ratios to cold.
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
    """Seconds to the first token, by where the prompt was found."""

    cold: list[float] = field(default_factory=list)
    l1: list[float] = field(default_factory=list)
    l2: list[float] = field(default_factory=list)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(argv: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child in a group of its own, which is killed whole at the end."""
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


def wait_http(url: str, child: subprocess.Popen[bytes], log: Path, deadline_s: float = 180) -> None:
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
def worker(url: str, folder: Path, name: str) -> Iterator[str]:
    """One vLLM worker with L1 and the given L2; yields its URL."""
    layout = default_layout()
    port = free_port()
    transfer = kv_transfer_config(
        l1_bytes=L1_BYTES,
        policy="lru",
        l2=L2Target(url=url, model_id="bench-smollm2", ttl_s=3600),
        platform="cpu",
    )
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
        "--kv-transfer-config",
        json.dumps(transfer),
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


@contextlib.contextmanager
def l2_engine(folder: Path) -> Iterator[str]:
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
    """A prompt of about that many tokens which no cache has seen."""
    nonce = f"{random.getrandbits(64):x}"
    return f"Document {nonce}. " + " ".join(random.choice(WORDS) for _ in range(tokens - 20))


def ask(url: str, text: str) -> tuple[float, str]:
    """(seconds to the first token, the 16 greedy tokens as text)."""
    body = {"model": "bench", "prompt": text, "max_tokens": 16, "temperature": 0, "stream": True}
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


def disk_tokens(url: str) -> float:
    """Prompt tokens which the worker took from L2 so far."""
    text = httpx.get(f"{url}/metrics", timeout=5).text
    found = re.findall(
        r'^vllm:prompt_tokens_cached_by_source_total\{[^}]*source="disk"[^}]*\} (\S+)', text, re.M
    )
    return sum(float(value) for value in found)


def written_chunks(url: str) -> float:
    text = httpx.get(f"{url}/metrics", timeout=5).text
    found = re.findall(
        r'^vllm:kv_offload_tiering_write_bytes_total\{[^}]*tier="1:[^}]*\} (\S+)', text, re.M
    )
    return sum(float(value) for value in found)


def settle(url: str) -> None:
    """Return once the worker's stores to L2 have stopped growing."""
    last, same = -1.0, 0
    end = time.monotonic() + 20
    while same < 3 and time.monotonic() < end:
        now = written_chunks(url)
        same = same + 1 if now == last else 0
        last = now
        time.sleep(0.3)


def measure(l2_url: str, folder: Path, name: str, tokens: int, repeats: int) -> Samples:
    samples = Samples()
    with worker(l2_url, folder, f"{name}-a") as a, worker(l2_url, folder, f"{name}-b") as b:
        for url in (a, b):
            ask(url, prompt(64))  # first request of a process: imports and thread pools
        for _ in range(repeats):
            text = prompt(tokens)
            cold, expected = ask(a, text)
            settle(a)
            httpx.post(f"{a}/reset_prefix_cache", timeout=20).raise_for_status()
            l1, warm = ask(a, text)
            before = disk_tokens(b)
            l2, other = ask(b, text)
            if not expected == warm == other:
                sys.exit(f"{name}: the text differs: {expected!r} {warm!r} {other!r}")
            if disk_tokens(b) <= before:
                sys.exit(f"{name}: worker B took nothing from L2; see {folder}")
            samples.cold.append(cold)
            samples.l1.append(l1)
            samples.l2.append(l2)
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=800)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="emberline-bench-"))
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, logs in {folder}")
    results: dict[str, Samples] = {}
    for name, backend in (("tieredstorage", l2_engine), ("valkey", l2_valkey)):
        with backend(folder) as url:
            results[name] = measure(url, folder, name, options.tokens, options.repeats)
    print(
        f"\nTTFT in seconds, median (min), {options.tokens} tokens, {options.repeats} prompts each"
    )
    print(f"{'L2 backend':16}{'cold':>18}{'L1 hit':>18}{'L2 hit':>18}{'L2 / cold':>12}")
    for name, found in results.items():
        cells = [
            f"{statistics.median(s):.2f} ({min(s):.2f})" for s in (found.cold, found.l1, found.l2)
        ]
        ratio = statistics.median(found.l2) / statistics.median(found.cold)
        print(f"{name:16}" + "".join(f"{cell:>18}" for cell in cells) + f"{ratio:12.3f}")


if __name__ == "__main__":
    main()
