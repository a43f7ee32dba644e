"""Prefix index of the router with many workers: memory, latency of a pick, churn.

    .venv/bin/python -m bench.router_index [--workers 1000] [--blocks 1000000] [--picks 20000]

Plays a mixed workload against policy and load accounting, without sockets: growing chats, documents
with a few questions each, and short prompts, all behind widely shared system prompts; four requests
in flight for each worker. Fills the index to that many blocks, times each pick and insertion, then
lets workers leave and join. Times are the process's CPU time, which other load hardly affects.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from time import process_time_ns

from routing.engine.config import Address, WorkerConfig
from routing.engine.fleet.load import RequestCharge
from routing.engine.fleet.workers import Worker, WorkerTable
from routing.engine.policies.base import Pick, RequestFacts
from routing.engine.policies.prefixaware import PrefixAware

BLOCK_TOKENS = 64


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Work:
    """Prompts as chains of block hashes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        # The first is common to all; the others belong to applications.
        self._systems = [self._blocks(self._random.randint(4, 48)) for _ in range(40)]
        self._chats: deque[list[int]] = deque(maxlen=5000)
        self._documents: deque[list[int]] = deque(maxlen=500)

    def _blocks(self, count: int) -> list[int]:
        bits = self._random.getrandbits
        return [bits(64) for _ in range(count)]

    def _system(self) -> list[int]:
        """Return the system prompt; one prompt in five has none."""
        rng = self._random
        kind = rng.random()
        if kind < 0.2:
            return []
        return self._systems[0] if kind < 0.6 else rng.choice(self._systems)

    def prompts(self) -> Iterator[list[int]]:
        rng = self._random
        while True:
            kind = rng.random()
            if kind < 0.5 and self._chats:
                chat = rng.choice(self._chats)
                chat.extend(self._blocks(rng.randint(1, 12)))
                if len(chat) > 500:
                    self._chats.remove(chat)
                yield list(chat)
            elif kind < 0.65:
                chat = self._system() + self._blocks(rng.randint(1, 8))
                self._chats.append(chat)
                yield list(chat)
            elif kind < 0.8 and self._documents:
                yield rng.choice(self._documents) + self._blocks(2)
            elif kind < 0.85:
                document = self._system() + self._blocks(rng.randint(100, 500))
                self._documents.append(document)
                yield document + self._blocks(2)
            else:
                yield self._system() + self._blocks(1)


class Play:
    """Simulated fleet; every request ends some time later."""

    def __init__(self, count: int, blocks: int) -> None:
        self._count = 0
        self._per_worker = blocks // count
        self.table = WorkerTable(lambda _worker, _what: None)
        for _ in range(count):
            self.table.add(self._worker())
        self.table.refresh()
        self.policy = PrefixAware(self._per_worker)
        self._waiting: deque[RequestCharge] = deque()
        self._answering: list[RequestCharge] = []
        self._limit = 4 * count
        self._picks = 0
        self._random = random.Random(5)

    def _worker(self) -> Worker:
        self._count += 1
        worker_id = f"worker-{self._count}.pool.svc:8000"
        worker = Worker(WorkerConfig(worker_id, f"http://{worker_id}", Address(worker_id, 8000)))
        worker.up = True
        return worker

    def send(self, chain: list[int]) -> tuple[Pick, int, int]:
        """Return the pick and the nanoseconds of choosing and of recording it."""
        facts = RequestFacts(chain, len(chain) * BLOCK_TOKENS + 30, BLOCK_TOKENS, b"")
        start = process_time_ns()
        pick = self.policy.rank(facts, self.table.fleet)
        chosen = process_time_ns()
        worker = self.table.workers[pick.worker.id]
        self.policy.sent(facts, worker)
        sent = process_time_ns()
        self._picks += 1
        worker.last_pick = self._picks
        uncached = facts.tokens - pick.cached_tokens
        self._waiting.append(RequestCharge(worker, uncached, facts.tokens, chain))
        if len(self._waiting) > self._limit // 8:  # most are decoding
            charge = self._waiting.popleft()
            charge.answered()
            self._answering.append(charge)
        if len(self._answering) > self._limit:
            at = self._random.randrange(len(self._answering))
            self._answering[at], self._answering[-1] = self._answering[-1], self._answering[at]
            self._answering.pop().end()
        return pick, chosen - start, sent - chosen

    def finish(self) -> None:
        for charge in (*self._waiting, *self._answering):
            charge.end()

    def held(self) -> int:
        return sum(self.policy.sizes().values())

    def replace_worker(self) -> None:
        gone = next(iter(self.table.workers.values()))
        self.table.remove(gone.id)
        self.policy.forget(gone)
        self.table.add(self._worker())
        self.table.refresh()


def quantile(values: list[int], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] / 1000


def times(name: str, values: list[int]) -> str:
    return (
        f"{name} p50 {quantile(values, 0.5):.1f} us, p99 {quantile(values, 0.99):.1f} us, "
        f"p99.9 {quantile(values, 0.999):.1f} us"
    )


def measure(count: int, blocks: int, picks: int) -> None:
    before = resident_mib()
    play = Play(count, blocks)
    prompts = Work(1).prompts()
    sent = 0
    while play.held() < 0.98 * blocks and sent < 60 * blocks // 100:
        for _ in range(1000):
            play.send(next(prompts))
        sent += 1000
    gc.collect()
    filled = resident_mib()
    gc.freeze()
    reasons: dict[str, int] = {}
    choosing: list[int] = []
    remembering: list[int] = []
    for _ in range(picks):
        pick, chosen_ns, sent_ns = play.send(next(prompts))
        reasons[pick.reason] = reasons.get(pick.reason, 0) + 1
        choosing.append(chosen_ns)
        remembering.append(sent_ns)
    print(f"{count} workers, {play.held():,} blocks held after {sent:,} prompts")
    print(f"  resident memory: {before:.0f} MiB before, {filled:.0f} MiB with the index full")
    print(f"  {times('pick', choosing)}")
    print(f"  {times('entry', remembering)}")
    print(f"  reasons: {reasons}")
    play.finish()


def churn(count: int, times_: int) -> None:
    play = Play(count, count * 1000)
    prompts = Work(2).prompts()
    marks = []
    for turn in range(times_):
        if turn % (times_ // 5) == 0:
            gc.collect()
            marks.append(f"{resident_mib():.0f}")
        play.replace_worker()
        play.send(next(prompts))
    gc.collect()
    marks.append(f"{resident_mib():.0f}")
    print(f"{times_:,} leaves and joins of {count} workers: resident MiB {' '.join(marks)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--picks", type=int, default=20_000)
    flags = parser.parse_args()
    measure(flags.workers, flags.blocks, flags.picks)
    for count in (2, 8):
        measure(count, count * 20_000, flags.picks)
    churn(50, 10_000)


if __name__ == "__main__":
    main()
