"""Cost of the KV block index: events/s, bytes a block, lookup latency.

    python -m bench.kv_index [--blocks 1000000] [--workers 8] [--block-size 16]
    python -m bench.kv_index --loop [--rate 200000]

The first measures one process in CPU time: payloads as vLLM sends them are decoded and applied,
until the index is full, then with an eviction for each stored block until all are replaced. The
second follows a real publisher from a busy event loop, in slices on the loop (as the router does)
and in a thread, and shows how long other callbacks wait: in CPU time too, since a thread that holds
the interpreter uses it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvloop
import zmq

from bench.rig import free_ports
from routing.engine.kv import chain
from routing.engine.kv.events import EventApplier
from routing.engine.kv.index import Index
from routing.engine.kv.match import match, usable_blocks
from routing.engine.kv.subscriber import Subscriber, SubscriptionTarget
from routing.engine.kv.wire import Decoder

PROMPT_TOKENS = 8192
_SECRET = b"b" * 32
_pack = msgspec.msgpack.encode
_random = random.Random(1)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def stored_event(hashes: list[int], tokens: list[int], block_size: int, parent: int | None) -> Any:
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": block_size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(hashes),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def removed_event(block_hash: int) -> Any:
    return {"type": "BlockRemoved", "block_hashes": [block_hash], "medium": "GPU", "group_idx": 0}


class Prompts:
    """Prompts of different lengths, reproducible from their number instead of stored."""

    LENGTHS = (1, 4, 64, 512)

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size

    def blocks(self, number: int) -> int:
        return self.LENGTHS[number % 4]

    def hashes(self, number: int) -> list[int]:
        draw = random.Random(number)
        return [draw.getrandbits(64) for _ in range(self.blocks(number))]

    def tokens(self, number: int) -> list[int]:
        draw = random.Random(-1 - number)
        start = draw.randrange(100_000)
        step = draw.randrange(1, 1000) * 2 + 1
        count = self.blocks(number) * self._block_size
        return [(start + at * step) & 0x1FFFF for at in range(count)]

    def store(self, number: int) -> Any:
        return stored_event(self.hashes(number), self.tokens(number), self._block_size, None)


class FedIndex:
    """Index with the CPU time used to feed it."""

    def __init__(self, workers: int, block_size: int) -> None:
        self.index = Index(_SECRET)
        self.applier = EventApplier(self.index)
        self.ranks = [self.index.rank(f"w{number}", 0, "m") for number in range(workers)]
        self.prompts = Prompts(block_size)
        self.block_size = block_size
        self.decoder = Decoder()
        self.cpu_s = 0.0

    def feed(self, worker: int, payload: bytes) -> None:
        start = time.process_time()
        for _ in self.applier.apply(self.ranks[worker], self.decoder.decode(payload).events):
            pass
        self.cpu_s += time.process_time() - start

    def fill(self, blocks: int) -> int:
        """Return the number of prompts used."""
        number = held = 0
        while held < blocks:
            payload = _pack([1.0, [self.prompts.store(number)], 0])
            self.feed(number // 4 % len(self.ranks), payload)
            held += self.prompts.blocks(number)
            number += 1
        return number

    def replace(self, prompts: int) -> int:
        """Evict the oldest prompt, deepest block first, and store a new one in each step.

        Return the number of block events.
        """
        events = 0
        for old in range(prompts):
            gone = [removed_event(item) for item in reversed(self.prompts.hashes(old))]
            payload = _pack([1.0, [*gone, self.prompts.store(old + prompts * 4)], 0])
            self.feed(old // 4 % len(self.ranks), payload)
            events += 2 * self.prompts.blocks(old)
        return events


def percentiles(times: list[float]) -> str:
    ordered = sorted(times)
    return (
        f"p50 {ordered[len(ordered) // 2] * 1e6:.0f} us, "
        f"p99 {ordered[len(ordered) * 99 // 100] * 1e6:.0f} us"
    )


def ask(fed: FedIndex, label: str) -> None:
    """Look up an 8k prompt: one worker has all of it, half of them the first half."""
    block, index = fed.block_size, fed.index
    tokens = [_random.randrange(100_000) for _ in range(PROMPT_TOKENS + 1)]
    blocks = usable_blocks(len(tokens), block)
    ids = [_random.getrandbits(64) for _ in range(blocks)]
    for number in range(len(fed.ranks)):
        count = blocks if number == 0 else blocks // 2 if number % 2 else 0
        if count:
            event = stored_event(ids[:count], tokens[: count * block], block, None)
            fed.feed(number, _pack([1.0, [event], 0]))
    naming: list[float] = []
    asking: list[float] = []
    root = index.root("m")
    for _ in range(1000):
        start = time.thread_time()
        names = chain.extend_chain(root, chain.pack_tokens(tokens), block)[:blocks]
        named = time.thread_time()
        found = match(index, {block: names})
        asking.append(time.thread_time() - named)
        naming.append(named - start)
    assert found.workers["w0"].gpu == PROMPT_TOKENS
    print(f"8k tokens, {label}, CPU: name {percentiles(naming)}; match {percentiles(asking)}")


def measure(flags: argparse.Namespace) -> None:
    fed = FedIndex(flags.workers, flags.block_size)
    before = resident()
    prompts = fed.fill(flags.blocks)
    held = len(fed.index)
    print(f"{flags.workers} workers, blocks of {flags.block_size} tokens, {held:,} distinct blocks")
    print(f"store: {held / fed.cpu_s:,.0f} blocks a CPU second")
    print(f"memory when filled: {(resident() - before) / held:.0f} bytes a block")
    fed.cpu_s = 0.0
    events = fed.replace(prompts)
    print(f"store and remove: {events / fed.cpu_s:,.0f} blocks a CPU second")
    size = resident() - before
    print(
        f"memory with every block replaced once: {size / len(fed.index):.0f} bytes a block, "
        f"{size / 1e9:.2f} GB"
    )
    ask(fed, "device only")
    fed.index.tiered = True
    ask(fed, "with tiers")
    start, pieces, longest = time.perf_counter(), 0, 0.0
    fed.index.empty(fed.ranks[0])
    while fed.index.sweeping:
        piece = time.perf_counter()
        fed.index.sweep()
        longest = max(longest, time.perf_counter() - piece)
        pieces += 1
    print(
        f"a worker lost: swept in {pieces} pieces, {(time.perf_counter() - start) * 1e3:.0f} ms, "
        f"longest {longest * 1e3:.2f} ms"
    )


# -- event loop latency while events arrive


def payloads() -> Iterator[tuple[int, bytes]]:
    """Yield block events and payload endlessly: prompts are stored, and evicted later."""
    prompts = Prompts(16)
    made: list[tuple[int, bytes]] = []
    for number in range(400):
        gone = [removed_event(item) for item in reversed(prompts.hashes((number + 200) % 400))]
        payload = _pack([time.time(), [*gone, prompts.store(number)], 0])
        made.append((len(gone) + prompts.blocks(number), payload))
    while True:
        yield from made


def publish(port: int, rate: int) -> None:
    """Publish `rate` block events/s until killed; runs in another process."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PUB)
    socket.sndhwm = 100_000  # vLLM's value
    socket.bind(f"tcp://127.0.0.1:{port}")
    sent, start = 0, time.monotonic()
    for number, (events, payload) in enumerate(payloads()):
        socket.send_multipart([b"", number.to_bytes(8, "big"), payload])
        sent += events
        ahead = sent / rate - (time.monotonic() - start)
        if ahead > 0.005:
            time.sleep(ahead)  # keeps the requested rate


async def turns(seconds: float) -> list[float]:
    """Return the process's CPU time (all threads) of each turn of a busy loop."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    before = time.process_time()
    while time.perf_counter() < end:
        await asyncio.sleep(0)
        now = time.process_time()
        found.append(now - before)
        before = now
    return sorted(found)


def wait_quantile(sorted_turns: list[float], share: float) -> float:
    """Return the quantile of the turn that a random arrival hits."""
    left = sum(sorted_turns) * share
    for turn in sorted_turns:
        left -= turn
        if left <= 0:
            return turn
    return 0.0


async def follow(label: str, counts: dict[str, int], seconds: float) -> None:
    before = _applied(counts)
    found = await turns(seconds)
    print(
        f"{label}: {(_applied(counts) - before) / seconds:,.0f} block events a second; who comes "
        f"to the loop waits for at most {wait_quantile(found, 0.5) * 1e3:.2f} ms (half of all), "
        f"{wait_quantile(found, 0.99) * 1e3:.2f} ms (99 %), {found[-1] * 1e3:.1f} ms (worst)"
    )


async def no_follower(_port: int, seconds: float) -> None:
    await follow("nobody follows", {}, seconds)


async def follow_on_loop(port: int, seconds: float) -> None:
    async def ask_nobody(_path: str) -> tuple[int, bytes]:
        raise OSError

    index = Index(_SECRET)
    follower = Subscriber(index, lambda *_a, **_k: None, (OSError,))
    follower.follow(
        [SubscriptionTarget("w", "127.0.0.1", "m", ask_nobody, (f"tcp://127.0.0.1:{port}",))]
    )
    counts = follower.applier.counts
    while not counts["stored"]:
        await asyncio.sleep(0.01)
    await follow("slices", counts, seconds)
    await follower.close()


def _applied(counts: dict[str, int]) -> int:
    return sum(
        counts.get(name, 0) for name in ("stored", "removed", "duplicate", "removed_unknown")
    )


async def follow_in_thread(port: int, seconds: float) -> None:
    index = Index(_SECRET)
    applier, rank, decoder = EventApplier(index), index.rank("w", 0, "m"), Decoder()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    stop = threading.Event()

    def run() -> None:
        socket = context.socket(zmq.SUB)
        socket.subscribe(b"")
        socket.connect(f"tcp://127.0.0.1:{port}")
        while not stop.is_set():
            if socket.poll(100):
                for _ in applier.apply(rank, decoder.decode(socket.recv_multipart()[-1]).events):
                    pass
        socket.close(linger=0)

    thread = threading.Thread(target=run)
    thread.start()
    while not applier.counts["stored"]:
        await asyncio.sleep(0.01)
    await follow("thread", applier.counts, seconds)
    stop.set()
    thread.join()
    context.destroy(linger=0)


def measure_loop(flags: argparse.Namespace) -> None:
    for run in (no_follower, follow_on_loop, follow_in_thread):
        port = free_ports(1)[0]
        command = [sys.executable, "-m", "bench.kv_index", "--publish", str(port)]
        publisher = subprocess.Popen([*command, "--rate", str(flags.rate)])
        try:
            uvloop.run(run(port, flags.seconds))
        finally:
            publisher.kill()
            publisher.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--rate", type=int, default=200_000, help="block events a second")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--publish", type=int, default=0, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.publish:
        publish(flags.publish, flags.rate)
    elif flags.loop:
        measure_loop(flags)
    else:
        measure(flags)


if __name__ == "__main__":
    main()
