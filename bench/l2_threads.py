"""Transfer threads of our cache node compared with the event loop alone, Redis 7 and Valkey.

    .venv/bin/python -m bench.l2_threads [--rounds 5] [--operations 120] [--sizes 1M,2M,5M]
                                         [--connections 1,4,8] [--copying] [--probe]

No process is pinned, so that a server may use every core. The clients send from and receive into
64 KiB that stay in the CPU cache, so that they take less of the cores that the server needs, as if
they were on another machine; `--copying` uses whole values. Rounds are interleaved and of a fixed
number of operations; medians of the rate and of the CPU time of both sides are shown. The Redis row
`redis io 2` has `io-threads 2`, with reads on the threads too. `--probe` adds the median latency of
an EXISTS each millisecond meanwhile.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median

from bench import l2_speed
from bench.l2_speed import OURS, REDIS, VALKEY, Server
from bench.rig import busy, machine
from cachetier.client.connection import Connection, command

_FOREVER = l2_speed._FOREVER
_POOL_BYTES = 96 * 2**20
_HOT_BYTES = 64 * 1024
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    OURS: (OURS, ()),
    "4 threads": (OURS, ("--transfer-threads", "4")),
    "no threads": (OURS, ("--transfer-threads", "0")),
    REDIS: (REDIS, ()),
    "redis io 2": (REDIS, ("--io-threads", "2", "--io-threads-do-reads", "yes")),
    VALKEY: (VALKEY, ()),
}


@dataclass
class Round:
    rate: float  # MiB/s
    server_us: float  # CPU time for each MiB
    busiest_us: float  # the same of the server's busiest thread
    client_us: float
    exists_us: float = 0.0  # median latency beside the load, 0 without a probe


class Load:
    """Load of one size; `copying` whole values, else one small buffer over and over."""

    def __init__(self, size: int, copying: bool) -> None:
        self.size = size
        self.missed = 0
        self._noise = memoryview(bytearray(os.urandom(_POOL_BYTES if copying else _HOT_BYTES)))

    def _body(self, number: int) -> list[memoryview]:
        noise, size = self._noise, self.size
        if len(noise) > _HOT_BYTES:
            place = number % (len(noise) // size) * size
            return [noise[place : place + size]]
        return [noise[: min(size - at, _HOT_BYTES)] for at in range(0, size, _HOT_BYTES)]

    def put(self, connection: Connection, key: bytes, number: int) -> None:
        head = b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, self.size)
        connection.send([head, *self._body(number), b"\r\n"], _FOREVER)
        assert connection.read_ok(_FOREVER)

    def get(self, connection: Connection, key: bytes, number: int) -> None:
        connection.send([command(b"GET", key)], _FOREVER)
        length = connection.read_bulk_length(_FOREVER)
        if length < 0:  # Redis' LRU is approximate
            self.missed += 1
            return
        assert length == self.size
        for part in self._body(number):
            connection.read_into(part, _FOREVER)
        connection.end_bulk(_FOREVER)


@contextmanager
def probing(server: Server, seconds: list[float]) -> Iterator[None]:
    """Send EXISTS each millisecond and append its latencies."""
    connection, stop = server.connect(), threading.Event()

    def probe() -> None:
        while not stop.wait(0.001):
            began = time.perf_counter()
            connection.send([command(b"EXISTS", b"none")], _FOREVER)
            connection.read_integer(_FOREVER)
            seconds.append(time.perf_counter() - began)

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        connection.close()


def measure(server: Server, load: Load, what: str, connections: int, operations: int) -> Round:
    """Divide the operations among threads with a connection each."""
    opened = [server.connect() for _ in range(connections)]
    numbers = iter(range(operations))
    lock = threading.Lock()
    first = server.written
    work: Callable[[Connection, bytes, int], None] = load.put if what == "SET" else load.get

    def one(connection: Connection) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            key = first + number if what == "SET" else first - 1 - number % 24
            work(connection, b"bench:%d" % key, number)

    threads = [threading.Thread(target=one, args=(connection,)) for connection in opened]
    server_s, client_s, began = server.thread_cpu_s(), time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    mebibytes = (operations - load.missed) * load.size / 2**20
    load.missed = 0
    spent = {name: s - server_s.get(name, 0.0) for name, s in server.thread_cpu_s().items()}
    client_us = (time.process_time() - client_s) / mebibytes * 1e6
    if what == "SET":
        server.written += operations
    for connection in opened:
        connection.close()
    by_side = (sum(spent.values()) / mebibytes * 1e6, max(spent.values()) / mebibytes * 1e6)
    return Round(mebibytes / seconds, *by_side, client_us)


def _show(what: str, size: int, connections: int, found: dict[str, list[Round]]) -> None:
    print(f"{what} {size // 1024} KiB, {connections} connections", flush=True)
    peer = median(one.rate for one in found.get(REDIS, [])) if found.get(REDIS) else 0.0
    for name, rounds in found.items():
        columns = zip(*(vars(one).values() for one in rounds), strict=True)
        rate, server, busiest, client, exists = map(median, columns)
        beside = f"  EXISTS {exists:.0f} us" if exists else ""
        ratio = f"  {rate / peer:.2f} x Redis" if peer else ""
        print(
            f"   {name:12} {rate:6.0f} MiB/s  CPU per MiB: server {server:4.0f} us "
            f"(busiest thread {busiest:4.0f}), client {client:4.0f} us{ratio}{beside}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--operations", type=int, default=120)
    parser.add_argument("--sizes", default="1M,2M,5M")
    parser.add_argument("--connections", default="1,4,8")
    parser.add_argument("--servers", default=",".join(VARIANTS))
    parser.add_argument("--copying", action="store_true")
    parser.add_argument("--probe", action="store_true")
    flags = parser.parse_args()
    print(f"{machine()}; median of {flags.rounds} rounds\n{busy()}", flush=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers: dict[str, Server] = {}
        for label in flags.servers.split(","):
            name, more = VARIANTS[label]
            server = stack.enter_context(l2_speed.serving(name, folder, more=more, core=None))
            if server is not None:
                servers[label] = server
        for size in map(l2_speed._size, flags.sizes.split(",")):
            load = Load(size, flags.copying)
            for server in servers.values():
                measure(server, load, "SET", 2, int(1.2 * l2_speed.MEMORY / size))
            for connections in map(int, flags.connections.split(",")):
                found: dict[str, dict[str, list[Round]]] = {"SET": {}, "GET": {}}
                for _ in range(flags.rounds):
                    for label, server in servers.items():
                        for what, rounds in found.items():
                            latencies: list[float] = []
                            beside = probing(server, latencies) if flags.probe else nullcontext()
                            with beside:
                                work = (load, what, connections, flags.operations)
                                result = measure(server, *work)
                            if latencies:
                                result.exists_us = median(latencies) * 1e6
                            rounds.setdefault(label, []).append(result)
                for what, rounds in found.items():
                    _show(what, size, connections, rounds)


if __name__ == "__main__":
    main()
