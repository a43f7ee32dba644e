"""Disk tier: throughput compared with plain file calls, and hit rates compared with Redis.

    .venv/bin/python -m bench.l2_disk [--folder FOLDER] [--mib 1024] [--only files|node|index]

files   values of 1 MiB written and read, through the tier and by plain calls on one file in the
        same folder, in turns. "durable" includes sync. Cold reads follow a drop of the file's page
        cache, warm ones do not.
node    a node with memory and disk, and Redis with the same memory: a working set of four times
        the memory, requested at random. Useful bytes are those of hits.
index   memory and time of an index of many values, measured by process growth, and the duration of
        a start that finds them.

Busy or virtual disks vary by factors between runs; compare ratios within one run.
"""

from __future__ import annotations

import argparse
import math
import os
import queue
import random
import resource
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from bench.rig import machine
from cachetier.engine.disk.format import Record
from cachetier.engine.disk.index import Index, Segment
from cachetier.engine.disk.segment import SegmentFile
from cachetier.engine.disk.tier import DiskTier
from cachetier.engine.disk.values import StoredValue
from cachetier.engine.store import Hold
from tests.support.cachenode import CacheNode, Valkey
from tests.support.waiting import until

MIB = 1024 * 1024
VALUE = MIB
_ROUNDS = 3
_READS_AT_ONCE = 4
_NODE_MEMORY = 128 * MIB


class DrivenTier:
    """Tier whose events are processed by this thread, as by a node's loop."""

    def __init__(self, folder: Path, capacity: int) -> None:
        self.news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.tier = DiskTier(
            folder, capacity, queue_bytes=64 * MIB, max_index_bytes=MIB * MIB, post=self.news.put
        )

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.news.get(timeout=60)()

    def write(self, count: int, value: bytes) -> None:
        view = memoryview(value)
        tier = self.tier
        for number in range(count):
            self.until(lambda: tier.usage().waiting_bytes + len(value) <= 64 * MIB)
            tier.offer(b"%d" % number, Hold([view], len(value)), math.inf)
        self.until(lambda: tier.usage().waiting_bytes == 0)

    def read(self, order: list[int]) -> None:
        """Read several at once into memory, and check them."""
        rooms = deque(memoryview(bytearray(VALUE)) for _ in range(_READS_AT_ONCE))
        ended: list[bool] = []
        for number in order:
            self.until(lambda: bool(rooms))
            found = self.tier.find(b"%d" % number, 0.0)
            assert isinstance(found, StoredValue)
            room = rooms.popleft()

            def done(good: bool, found: StoredValue = found, room: memoryview = room) -> None:
                assert good
                ended.append(good)
                found.release()
                rooms.append(room)

            found.fetch(done, [room])
        self.until(lambda: len(ended) == len(order))


@contextmanager
def timed(into: list[tuple[float, float]]) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    into.append((time.perf_counter() - wall, time.process_time() - cpu))


def drop_cached(paths: list[Path]) -> None:
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


# -- files -------------------------------------------------------------------------------------
def plain_write(path: Path, count: int, value: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in range(count):
        os.pwrite(fd, value, number * VALUE)
    os.fdatasync(fd)
    os.close(fd)


def plain_read(path: Path, order: list[int]) -> None:
    room = bytearray(VALUE)
    fd = os.open(path, os.O_RDONLY)
    for number in order:
        assert os.preadv(fd, [room], number * VALUE) == VALUE
    os.close(fd)


def tier_write(folder: Path, count: int, value: bytes) -> None:
    driven = DrivenTier(folder, 2 * count * VALUE)
    driven.write(count, value)
    driven.tier.close(60.0)


def files(folder: Path, count: int) -> None:
    value, order = os.urandom(VALUE), list(range(count))
    random.Random(1).shuffle(order)
    plain, tier = folder / "plain", folder / "tier"
    figures: dict[str, list[tuple[float, float]]] = {}
    for _ in range(_ROUNDS):
        shutil.rmtree(tier, ignore_errors=True)
        with timed(figures.setdefault("write, durable: plain", [])):
            plain_write(plain, count, value)
        with timed(figures.setdefault("write, durable: tier", [])):
            tier_write(tier, count, value)
        driven = DrivenTier(tier, 2 * count * VALUE)
        for name in ("cold", "warm"):
            if name == "cold":
                drop_cached([plain, *tier.glob("*.seg")])
            with timed(figures.setdefault(f"read, {name}: plain", [])):
                plain_read(plain, order)
            with timed(figures.setdefault(f"read, {name}: tier, {_READS_AT_ONCE} at once", [])):
                driven.read(order)
        driven.tier.close(60.0)
    print(f"\nfiles: {count} values of 1 MiB, best of {_ROUNDS}")
    for name, runs in figures.items():
        wall, cpu = min(runs)
        print(f"  {name:34} {count / wall:8,.0f} MiB/s   {cpu / count * 1e6:7,.0f} us CPU a value")


# -- node --------------------------------------------------------------------------------------
def ask(name: str, url: str, count: int, asks: int, arrive: Callable[[], None]) -> None:
    """`arrive` waits for pending writes: in production values arrive slowly."""
    value = os.urandom(VALUE)
    with redis.Redis.from_url(url) as client:
        for number in range(count):
            client.set(f"k{number}", value)
            if not number % 8:
                arrive()
        order = random.Random(2).choices(range(count), k=asks)
        for number in order[: asks // 2]:
            client.get(f"k{number}")
        started, hits = time.perf_counter(), 0
        for number in order[asks // 2 :]:
            hits += client.get(f"k{number}") is not None
        took = time.perf_counter() - started
    share = hits / (asks - asks // 2)
    print(f"  {name:34} {share:6.1%} hits, {hits * VALUE / MIB / took:8,.0f} useful MiB/s")


def node(folder: Path) -> None:
    count = 4 * _NODE_MEMORY // VALUE
    print(f"\nnode: {count} values of 1 MiB, {_NODE_MEMORY // MIB} MiB of memory, one connection")
    memory = f"{_NODE_MEMORY // MIB}MiB"
    ours = CacheNode(folder, "--disk", f"{folder / 'node'}:{2 * count}MiB", memory=memory)
    try:
        waiting = "emberline_l2_disk_waiting_bytes"
        ask(
            "Emberline, memory and disk", ours.url, count, 4 * count,
            lambda: until(lambda: not ours.metric(waiting), what="the writer"),
        )  # fmt: skip
        reads = ours.metric("emberline_l2_disk_reads_total", result="ok")
        print(f"  {'':34} of its reads {reads:,.0f} came from disk")
    finally:
        ours.stop()
    peer = Valkey(folder, memory=f"{_NODE_MEMORY // MIB}mb")
    try:
        ask("Valkey, memory", peer.url, count, 4 * count, lambda: None)
    finally:
        peer.stop()


# -- index -------------------------------------------------------------------------------------
def index(folder: Path, count: int = 500_000) -> None:
    print(f"\nindex: {count:,} keys of 140 bytes")
    before = resident()
    found, segments = Index(), []
    for number in range(count // 50_000):
        file = SegmentFile.create(folder, number + 1, 8192 * MIB)
        segments.append(Segment(file, MIB))
        found.open(segments[-1])
    for number in range(count):
        segment = segments[number // 50_000]
        key = b"emb1:%0135d" % number
        found.put(segment, Record(number % 50_000, number << 20, key, MIB, number), 2**62)
    grown = (resident() - before) / count
    print(f"  {grown:,.0f} bytes an entry ({found.bytes_estimated / count:,.0f} estimated)")
    for segment in segments:
        segment.file.close()
    del found, segments
    place, value = folder / "found", b"v" * 100
    written = DrivenTier(place, 64 * 1024 * MIB)
    for number in range(count // 5):
        key = b"emb1:%0135d" % number
        written.tier.offer(key, Hold([memoryview(value)], len(value)), math.inf)
        if not number % 1000:
            written.until(lambda: written.tier.usage().waiting_bytes == 0)
    written.tier.close(60.0)
    started = time.perf_counter()
    again = DrivenTier(place, 64 * 1024 * MIB)
    took = time.perf_counter() - started
    entries = again.tier.usage().entries
    print(f"  found again: {entries:,} in {took:.2f} s ({took / entries * 1e6:.1f} us each)")
    again.tier.close(60.0)


def resident() -> int:
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to measure")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--only", choices=("files", "node", "index"), default="")
    args = parser.parse_args()
    print(machine())
    folder = Path(tempfile.mkdtemp(prefix="l2-disk-", dir=args.folder))
    try:
        if args.only in ("", "files"):
            files(folder, args.mib)
        if args.only in ("", "node"):
            node(folder)
        if args.only in ("", "index"):
            index(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
