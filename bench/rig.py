"""Common parts of the router benchmarks: core pinning, bare workers, load generator, our router.

The router has the first core for itself, everything else shares the second. The generator
(bench/native/load.c, compiled here) reports its utilization: at its limit, a measured rate is the
generator's.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers import Process

ROUTER_CORE = 0
LOAD_CORE = 1
KEY = "bench-key-0123456789abcdef"
_ROOT = Path(__file__).resolve().parents[1]
_SOURCE = Path(__file__).parent / "native" / "load.c"
EVENTS = 100  # of a stream, as in load.c
_NUMBER = "#no:0000000000"  # replaced by load.c with the request number


def free_ports(count: int) -> list[int]:
    """Return free ports, each followed by another free one (peers need a second for metrics).

    They are below the ephemeral range, so that no outgoing connection takes one.
    """
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < count:
            port = random.randrange(15_000, 32_000, 2)
            try:
                held += [socket.create_server(("127.0.0.1", port + more)) for more in (0, 1)]
            except OSError:
                continue
            ports.append(port)
    finally:
        for one in held:
            one.close()
    return ports


def machine() -> str:
    """Return CPU model, cores and date, to judge the figures."""
    model = next(
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    python = platform.python_version()
    return f"{model}, {os.cpu_count()} cores, Python {python}, {time.strftime('%Y-%m-%d')}"


def busy() -> str:
    """Return a warning if the machine is busy: rates and latencies are then unreliable."""
    load = os.getloadavg()[0]
    return f"the machine was busy before we began (load {load:.1f})" if load > 0.5 else ""


def _words(seed: str, size: int) -> str:
    """Return unique text of about `size` bytes."""
    chance = random.Random(seed)
    out: list[str] = []
    length = 0
    while length < size:
        word = "".join(chance.choices("etaoinshrdlucmfw", k=chance.randint(2, 9)))
        out.append(word)
        length += len(word) + 1
    return " ".join(out)[:size]


def requests(groups: int, prompt_bytes: int, stream: bool = False) -> list[bytes]:
    """Return one request for each group.

    Three quarters of the prompt are the group's, the rest is new each time (from the number on), as
    in a chat with a new last turn.
    """
    out = []
    for group in range(groups):
        shared = f"group {group} " + _words(f"shared {group}", prompt_bytes * 3 // 4)
        own = f"{_NUMBER} " + _words(f"own {group}", prompt_bytes - len(shared) - len(_NUMBER) - 1)
        body = {
            "model": "m",
            "messages": [{"role": "system", "content": shared}, {"role": "user", "content": own}],
            "max_tokens": 64,
            "stream": stream,
        }
        data = json.dumps(body, separators=(",", ":")).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: router.example\r\nAccept: */*\r\n"
            f"User-Agent: bench\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        out.append(head.encode() + data)
    return out


@dataclass
class Measured:
    """Result of one run, with the router's CPU time."""

    answers: int
    errors: int
    seconds: float
    p50_us: float
    p99_us: float
    generator_busy: float  # share of its core
    router_cpu_us: float  # for each response

    @property
    def rate(self) -> float:
        return self.answers / self.seconds


class Rig:
    """Running bare workers and a compiled generator."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self._load = str(folder / "load")
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            sys.exit("A C compiler is needed for the load generator: apt-get install gcc")
        subprocess.run([compiler, "-O2", "-o", self._load, str(_SOURCE)], check=True)
        self.ports = free_ports(workers)
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.warm_wires = self.wires("warm", requests(64, 1024))
        self.workers = Process([self._load, "serve", *map(str, self.ports)], 0, LOAD_CORE)
        for port in self.ports:
            wait_for(port)

    def wires(self, name: str, wires: Sequence[bytes]) -> Path:
        """Write the requests in the generator's format."""
        path = self.folder / name
        path.write_bytes(b"".join(struct.pack("=I", len(wire)) + wire for wire in wires))
        return path

    def load(
        self,
        port: int,
        wires: Path,
        connections: int,
        seconds: float,
        router: Process | None = None,
        pace_s: float = 0.0,
    ) -> Measured:
        """Keep `connections` requests in flight for `seconds`."""
        cpu = router.cpu_s() if router is not None else 0.0
        workers_cpu = self.workers.cpu_s()
        command = ["taskset", "-c", str(LOAD_CORE), self._load, "run", str(port)]
        command += [str(connections), str(seconds), str(wires), str(pace_s)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        document = json.loads(done.stdout)
        if document["errors"] or not document["answers"]:
            raise RuntimeError(
                f"{document['errors']} of {document['answers']} answers were not a whole 200"
            )
        spent = (router.cpu_s() if router is not None else 0.0) - cpu
        side = document["cpu_s"] + self.workers.cpu_s() - workers_cpu
        return Measured(
            document["answers"],
            document["errors"],
            document["seconds"],
            document["p50_us"],
            document["p99_us"],
            side / document["seconds"],
            spent / document["answers"] * 1e6,
        )


def start_router(
    strategy: str, workers: Sequence[str], folder: Path, checkout: Path = _ROOT
) -> Process:
    """Start our router with production features: keys, admin port, access log, decisions.

    `checkout`: the source to run, which may be a compiled copy.
    """
    port, admin = free_ports(2)
    keys = folder / "keys.json"
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    keys.write_text(json.dumps({"keys": [{"id": "bench", "sha256": digest}]}))
    command = [sys.executable, "-m", "routing.engine", "--listen", f"127.0.0.1:{port}"]
    command += ["--admin", f"127.0.0.1:{admin}", "--api-keys", str(keys)]
    command += ["--model", "m", "--strategy", strategy]
    for url in workers:
        command += ["--worker", url]
    router = Process(command, port, ROUTER_CORE, checkout)
    router.wait_until_serving(KEY)
    return router


def start_relay(worker_port: int) -> Process:
    """Start the relay to one worker."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "bench.relay", str(port), str(worker_port)]
    process = Process(command, port, ROUTER_CORE)
    wait_for(port)
    return process


@contextmanager
def rig(workers: int = 2) -> Iterator[Rig]:
    """Compile the generator and start the workers; clean up afterwards."""
    with tempfile.TemporaryDirectory(prefix="emberline-bench-") as folder:
        made = Rig(Path(folder), workers)
        try:
            yield made
        finally:
            made.workers.stop()


def wait_for(port: int) -> None:
    """Wait until the port accepts connections."""
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return
