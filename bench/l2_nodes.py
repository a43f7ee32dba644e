"""Tiers of several cache nodes: throughput behind one client, and changes of nodes under load.

    .venv/bin/python -m bench.l2_nodes [--parts throughput,changes] [--rounds 3] [--seconds 0.6]
                                       [--sizes 64K,1M,2M] [--nodes 1,2,4] [--phase 8]

Throughput: the workers' client (cachetier.client.pool, four threads, batches of four checked
blocks of one node, as the connector sends them) with 1, 2 and 4 of our nodes, and of plain Redis
behind the same client. All nodes are full. Rounds are interleaved; medians. `CPU per MiB` is the
figure to compare on few cores: `busy` is the share of all cores that client and nodes used, `of
ideal` the rate beside that many times the rate of one.

Changes: requests at a constant rate, each for a document of four blocks (EXISTS, GET of what is
there, SET of what is not), documents chosen by a Zipf law, while a node is added, drained, killed,
stopped (SIGSTOP: it accepts and never replies) and brought back. The nodes hold everything, so each
lost hit is due to the change. Latency is that of EXISTS and GET, from the scheduled start.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import l2_speed
from bench.l2_speed import OURS, REDIS, Server
from bench.rig import busy, free_ports, machine
from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.pool import CachePool
from tests.support.waiting import until

THREADS, BATCH = 4, 4
LOOKUP_S, LOAD_S, STORE_S = 0.5, 2.0, 10.0  # deadlines of the vLLM connector
DOCUMENTS, BLOCK_BYTES, RATE = 900, 32 * 1024, 60.0
BUCKET_S = 0.5
_WORKING_SET = 96 * 2**20
_MEMORY = {OURS: ("--memory", "128MiB"), REDIS: ("--maxmemory", "128mb")}

Items = list[tuple[bytes, memoryview]]


# -- throughput


@dataclass
class Round:
    rate: float  # MiB/s
    client_us: float  # CPU time per MiB
    nodes_us: float


def _measure(pool: CachePool, servers: Sequence[Server], size: int, what: str, s: float) -> Round:
    """Run four threads for `s` seconds; SET writes new keys, GET reads those written before."""
    noise = memoryview(os.urandom(size * BATCH))
    bodies = [noise[size * i : size * (i + 1)] for i in range(BATCH)]
    servers[0].written += 1
    fresh = _batches(pool, b"%s-%d-%d" % (what.encode(), size, servers[0].written))
    lock, done = threading.Lock(), [0] * THREADS
    targets = [[memoryview(bytearray(size)) for _ in range(BATCH)] for _ in range(THREADS)]

    def put(_thread: int) -> int:
        with lock:
            keys = next(fresh)
        return pool.store(list(zip(keys, bodies, strict=True)), 0, STORE_S).count(KeyOutcome.OK)

    def get(thread: int) -> int:
        with lock:
            keys = next(stored)
        items = list(zip(keys, targets[thread], strict=True))
        return pool.load(items, STORE_S).count(KeyOutcome.OK)

    one = put
    if what == "GET":
        known = list(itertools.islice(fresh, max(_WORKING_SET // size // BATCH, 2)))
        for keys in known:
            pool.store(list(zip(keys, bodies, strict=True)), 0, STORE_S)
        stored, one = itertools.cycle(known), get
    end = time.perf_counter() + s

    def work(thread: int) -> None:
        while time.perf_counter() < end:
            done[thread] += one(thread)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    nodes, client, began = sum(n.cpu_s() for n in servers), time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    mebibytes = max(sum(done), 1) * size / 2**20
    client_us = (time.process_time() - client) / mebibytes * 1e6
    nodes_us = (sum(n.cpu_s() for n in servers) - nodes) / mebibytes * 1e6
    return Round(mebibytes / seconds, client_us, nodes_us)


def _fill(pool: CachePool, count: int) -> None:
    """Write until every node has used all its memory and evicts."""
    body = memoryview(os.urandom(2**20))
    batches = _batches(pool, b"fill")
    for _ in range(int(1.3 * 128 * count / BATCH)):
        pool.store([(key, body) for key in next(batches)], 0, STORE_S)


def _batches(pool: CachePool, stem: bytes) -> Iterator[list[bytes]]:
    """Yield keys of one node each, as the connector groups them."""
    waiting: dict[str, list[bytes]] = {}
    for number in itertools.count():
        key = b"%s-%d" % (stem, number)
        lane = pool.lane(key)
        waiting.setdefault(lane, []).append(key)
        if len(waiting[lane]) == BATCH:
            yield waiting.pop(lane)


def throughput(flags: argparse.Namespace, folder: str) -> None:
    counts = [int(text) for text in flags.nodes.split(",")]
    with ExitStack() as stack:
        tiers: dict[tuple[str, int], tuple[CachePool, list[Server]]] = {}
        for name in (OURS, REDIS):
            started = [
                stack.enter_context(l2_speed.serving(name, folder, more=_MEMORY[name], core=None))
                for _ in range(max(counts))
            ]
            servers = [server for server in started if server is not None]
            for count in counts if servers else ():
                hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers[:count])
                pool = CachePool(Nodes.parse(f"redis://{hosts}"))
                stack.callback(pool.close)
                tiers[name, count] = pool, servers[:count]
            if servers:
                _fill(tiers[name, max(counts)][0], max(counts))
        for size in map(l2_speed._size, flags.sizes.split(",")):
            for what in ("SET", "GET"):
                found: dict[tuple[str, int], list[Round]] = {}
                for _ in range(flags.rounds):
                    for tier, (pool, servers) in tiers.items():
                        one = _measure(pool, servers, size, what, flags.seconds)
                        found.setdefault(tier, []).append(one)
                _show(what, size, found)


def _show(what: str, size: int, found: dict[tuple[str, int], list[Round]]) -> None:
    print(f"{what} {size // 1024} KiB", flush=True)
    single: dict[str, tuple[float, float]] = {}
    for (name, count), rounds in found.items():
        columns = zip(*(vars(one).values() for one in rounds), strict=True)
        rate, client, nodes = map(median, columns)
        first, cpu = single.setdefault(name, (rate / count, client + nodes))
        used = rate * (client + nodes) / 1e6 / (os.cpu_count() or 1)
        print(
            f"   {name:9} {count} nodes {rate:6.0f} MiB/s  CPU per MiB: client {client:4.0f} us, "
            f"nodes {nodes:4.0f} us ({(client + nodes) / cpu:.2f} x one node)  "
            f"busy {100 * used:3.0f} %  of ideal {100 * rate / first / count:3.0f} %",
            flush=True,
        )


# -- changes under load


class TierNode:
    """One of our nodes on fixed ports, named in the list."""

    def __init__(self, number: int, folder: Path) -> None:
        self.name = f"cache-{number}"
        self.port, self.admin = free_ports(1)[0], free_ports(1)[0]
        self._log = folder / f"{self.name}.log"
        self.start()

    @property
    def line(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0?name={self.name}"

    def start(self) -> None:
        argv = [sys.executable, "-m", "cachetier.engine", "--listen", f"127.0.0.1:{self.port}"]
        argv += ["--memory", "128MiB", "--admin", f"127.0.0.1:{self.admin}", "--log-level", "error"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        until(lambda: self.order("/healthz", "GET"), 20.0, self.name)

    def order(self, path: str, method: str = "POST") -> str:
        url = f"http://127.0.0.1:{self.admin}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method)) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def drain(self, heirs: Sequence[TierNode]) -> dict[str, object]:
        """Hand the values over as the console orders it, and stop."""
        named = ",".join(heir.line.replace("?", "%3F").replace("=", "%3D") for heir in heirs)
        plain = ",".join(f"127.0.0.1:{heir.port}" for heir in heirs)
        if not self.order(f"/drain?to={named}"):  # a version that knows addresses only
            self.order(f"/drain?to={plain}")

        def ended() -> dict[str, object] | None:
            facts: dict[str, object] = json.loads(self.order("/stats", "GET"))["handover"]
            return facts if facts["state"] != "running" else None

        facts = until(ended, 60.0, "handover")
        self.stop(signal.SIGTERM)
        return facts

    def stop(self, how: int = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        if how != signal.SIGSTOP:
            self.process.wait(20)


@dataclass
class Bucket:
    blocks: int = 0
    hits: int = 0
    failed: int = 0  # outcomes of failed nodes
    lost: set[bytes] = field(default_factory=set)  # keys that were not there
    latencies: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        return 100 * self.hits / max(self.blocks, 1)


class Load:
    """Requests at a constant rate; statistics by half-second since `mark`."""

    def __init__(self, pool: CachePool) -> None:
        self.pool = pool
        self.raised = 0
        self.wrong = 0
        self._chance = random.Random(1)
        self._weights = list(itertools.accumulate(1 / rank for rank in range(1, DOCUMENTS + 1)))
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._buckets: dict[int, Bucket] = {}
        self._began = self._marked = time.monotonic()
        self._ticks = itertools.count()
        body = os.urandom(BLOCK_BYTES)
        self._bodies = [memoryview(bytes([i]) + body[1:]) for i in range(BATCH)]
        self._threads = [threading.Thread(target=self._work) for _ in range(8)]

    def keys(self, document: int) -> list[bytes]:
        return [b"emb1:bench:0:%08x%02x" % (document, i) for i in range(BATCH)]

    def fill(self) -> None:
        for document in range(DOCUMENTS):
            self._store(self.keys(document))

    def owners(self) -> dict[bytes, str]:
        every = (key for document in range(DOCUMENTS) for key in self.keys(document))
        return {key: self.pool.lane(key) for key in every}

    def start(self) -> None:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def mark(self) -> None:
        with self._lock:
            self._buckets, self._marked = {}, time.monotonic()

    def buckets(self) -> dict[int, Bucket]:
        with self._lock:
            return dict(sorted(self._buckets.items()))

    def _work(self) -> None:
        targets = [memoryview(bytearray(BLOCK_BYTES)) for _ in range(BATCH)]
        while True:
            due = self._began + next(self._ticks) / RATE
            if self._stop.wait(max(due - time.monotonic(), 0.0)):
                return
            with self._lock:
                choice = self._chance.choices(range(DOCUMENTS), cum_weights=self._weights)[0]
            try:
                self._request(choice, targets, due)
            except Exception as exc:  # noqa: BLE001  (the count is the result)
                print(f"raised: {exc!r}")
                self.raised += 1

    def _request(self, document: int, targets: list[memoryview], due: float) -> None:
        keys = self.keys(document)
        seen = self.pool.exists(keys, LOOKUP_S)
        there = [i for i, outcome in enumerate(seen) if outcome is KeyOutcome.OK]
        loaded = self.pool.load([(keys[i], targets[i]) for i in there], LOAD_S)
        seconds = time.monotonic() - due
        well = {i for i, outcome in zip(there, loaded, strict=True) if outcome is KeyOutcome.OK}
        self.wrong += sum(targets[i] != self._bodies[i] for i in well)
        with self._lock:
            bucket = self._buckets.setdefault(int((due - self._marked) // BUCKET_S), Bucket())
            bucket.blocks += BATCH
            bucket.hits += len(well)
            bucket.lost.update(key for i, key in enumerate(keys) if i not in well)
            bucket.failed += sum(one in _FAILED for one in (*seen, *loaded))
            bucket.latencies.append(seconds)
        self._store([key for i, key in enumerate(keys) if i not in well])

    def _store(self, keys: list[bytes]) -> None:
        self.pool.store([(key, self._bodies[key[-1] - 48]) for key in keys], 0, STORE_S)


_FAILED = {KeyOutcome.TIMEOUT, KeyOutcome.ERROR, KeyOutcome.OPEN, KeyOutcome.NO_NODE}


class Changes:
    def __init__(self, folder: Path, phase_s: float) -> None:
        self._folder = folder
        self._phase_s = phase_s
        self._list = folder / "nodes"
        self.nodes = [TierNode(number, folder) for number in range(3)]
        self.publish(self.nodes)
        self.pool = CachePool(Nodes.parse(f"file://{self._list}"))
        self.load = Load(self.pool)
        until(lambda: len(self.pool.open_breakers()) == 3, 20.0, "three nodes")

    def publish(self, nodes: Sequence[TierNode]) -> None:
        fresh = self._list.with_suffix(".new")
        fresh.write_text("".join(f"{node.line}\n" for node in nodes))
        fresh.replace(self._list)

    def run(self) -> None:
        self.load.fill()
        self.load.start()
        self._pause(2.0)
        fourth = TierNode(3, self._folder)
        first = self.nodes[0]
        self.nodes.append(fourth)
        self._change("add a fourth node", 1 / 4, lambda: self.publish(self.nodes))
        # One whose values no other node has.
        self._change("drain another one", 1 / 4, lambda: self._drain(self.nodes.pop(2)))
        self._change("kill one of three", 1 / 3, first.stop)
        self._change("bring it back, empty", 1 / 3, first.start)
        self._pause(self._phase_s)
        self._change("stop one of three (silent)", 1 / 3, lambda: first.stop(signal.SIGSTOP))
        self._change("continue it", 1 / 3, lambda: first.process.send_signal(signal.SIGCONT))
        print(f"exceptions seen by callers: {self.load.raised}, wrong bytes: {self.load.wrong}")

    def close(self) -> None:
        self.load.stop()
        self.pool.close()
        for node in self.nodes:
            node.process.kill()

    def _drain(self, node: TierNode) -> None:
        self.publish(self.nodes)
        facts = node.drain(self.nodes)
        print(f"   handed over {facts['handed']}, already there {facts['there']}")

    def _pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def _change(self, what: str, ideal: float, act: Callable[[], object]) -> None:
        self.load.fill()
        self.load.mark()
        self._pause(3.0)
        before, owners = self.load.buckets(), self.load.owners()
        counted = self._previous()
        print(what, flush=True)
        self.load.mark()
        act()
        self._pause(self._phase_s)
        now = self.load.owners()
        moved = sum(now[key] != owner for key, owner in owners.items()) / len(owners)
        spread = Counter(now.values())
        after = self.load.buckets()
        self._report(before, after)
        largest = max(spread.values()) * len(spread) / len(owners)
        new = self._previous() - counted
        print(
            f"   keys that changed their node: {100 * moved:.1f} % (ideal {100 * ideal:.1f} %); "
            f"largest node {largest:.2f} x the mean"
        )
        if new:
            counts = ", ".join(f"{op} {result} {n}" for (op, result), n in sorted(new.items()))
            print(f"   at the previous owner: {counts}")

    def _previous(self) -> Counter[tuple[str, str]]:
        return Counter(getattr(self.pool.counters, "by_previous", {}))

    def _report(self, before: dict[int, Bucket], after: dict[int, Bucket]) -> None:
        usual = _merge(before.values())
        total, worst = _merge(after.values()), min(after.values(), key=lambda b: b.hit_rate)
        low = [n for n, bucket in after.items() if bucket.hit_rate < usual.hit_rate - 2]
        back = (max(low) + 1) * BUCKET_S if low else 0.0
        curve = " ".join(f"{bucket.hit_rate:.0f}" for bucket in after.values())
        print(
            f"   hit rate before {usual.hit_rate:.1f} %, lowest {worst.hit_rate:.1f} %, back after "
            f"{back:.1f} s; misses {total.blocks - total.hits} of {total.blocks} "
            f"({len(total.lost)} different keys), replies of failed nodes {total.failed}\n"
            f"   latency p50/p99/max before {_quantiles(usual)} ms, after {_quantiles(total)} ms\n"
            f"   hit rate by half-second: {curve}",
            flush=True,
        )


def _merge(buckets: Iterator[Bucket] | Sequence[Bucket]) -> Bucket:
    total = Bucket()
    for one in buckets:
        total.blocks += one.blocks
        total.hits += one.hits
        total.failed += one.failed
        total.lost |= one.lost
        total.latencies += one.latencies
    return total


def _quantiles(bucket: Bucket) -> str:
    ordered = sorted(bucket.latencies) or [0.0]
    shares = (0.5, 0.99, 1.0)
    chosen = (ordered[min(int(len(ordered) * share), len(ordered) - 1)] for share in shares)
    return "/".join(f"{1000 * seconds:.1f}" for seconds in chosen)


@contextmanager
def changes(folder: Path, phase_s: float) -> Iterator[Changes]:
    made = Changes(folder, phase_s)
    try:
        yield made
    finally:
        made.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default="throughput,changes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.6, help="of one measurement")
    parser.add_argument("--sizes", default="64K,1M,2M")
    parser.add_argument("--nodes", default="1,2,4")
    parser.add_argument("--phase", type=float, default=8.0, help="seconds after a change")
    flags = parser.parse_args()
    print(f"python -m bench.l2_nodes {' '.join(sys.argv[1:])}\n{machine()}\n{busy()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if "throughput" in flags.parts:
            throughput(flags, folder)
        if "changes" in flags.parts:
            with changes(Path(folder), flags.phase) as made:
                made.run()


if __name__ == "__main__":
    main()
