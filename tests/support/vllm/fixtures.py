"""Real vLLM workers shared by every test of a run, by configuration.

Both configurations have two workers with 32-token blocks, device caches so small that prompts of
a few tests evict each other, and KV events over a socket. Tests share them by sending prompts that
no other test sends (`router_process.text`); a worker that a test stopped is started again for the
next module.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cachetier.vllm_connector.settings import L2Target, kv_transfer_config
from tests.support.cachefaults import FaultProxy
from tests.support.cachenode import CacheNode
from tests.support.vllm.installation import LAYERS, short_model_path
from tests.support.vllm.router_process import Seat, events, text
from tests.support.vllm.worker import BLOCK_TOKENS, Completion, Worker
from tests.support.waiting import until

GPU_BLOCKS = 48
FILLING_PROMPTS = 6  # of FILLING_WORDS each: more than a device holds, and less than L1 does
FILLING_WORDS = 280
# Keys and values, of 3 heads of 64 numbers of 4 bytes each.
BLOCK_BYTES = BLOCK_TOKENS * LAYERS * 2 * 3 * 64 * 4
L1_BYTES = 256 * BLOCK_BYTES
PASSWORD = "a-password-nobody-may-read-in-a-log"
SMALL = ("--num-gpu-blocks-override", str(GPU_BLOCKS), "--max-model-len", "1024")


@dataclass(frozen=True)
class Pair:
    """Workers `a` and `b` without L1 and L2."""

    folder: Path
    seats: Sequence[Seat]

    @property
    def a(self) -> Worker:
        return self.seats[0].worker

    @property
    def b(self) -> Worker:
        return self.seats[1].worker

    def start_ended_workers(self) -> None:
        ended = [seat.worker for seat in self.seats if seat.worker.process.poll() is not None]
        for worker in ended:
            worker.restart()
        for worker in ended:
            worker.wait_ready()

    def kill(self) -> None:
        for seat in self.seats:
            seat.worker.kill()


@dataclass(frozen=True)
class TieredPair(Pair):
    """Workers with L1 and one cache node as L2, which `b` reaches through `proxy`."""

    node: CacheNode
    proxy: FaultProxy

    def computed_and_stored(self, prompt: str, deadline_s: float = 90.0) -> Completion:
        """Return A's answer once every full block of the prompt is in L2."""
        before = self.node.metric("emberline_l2_blocks")
        answer = self.a.complete(prompt)
        blocks = answer.prompt_tokens // BLOCK_TOKENS
        until(
            lambda: self.node.metric("emberline_l2_blocks") >= before + blocks,
            deadline_s,
            "blocks in L2",
        )
        return answer

    def wait_l2_used(self) -> None:
        """Wait until B loads from L2 what A stored: breakers rest after a fault."""

        def used() -> bool:
            prompt = text(80)
            try:
                self.computed_and_stored(prompt, deadline_s=3.0)
            except AssertionError:  # A's breaker rests too, and what it computes is not stored
                return False
            before = self.b.cached_from("disk")
            self.b.complete(prompt, tokens=1)
            return self.b.cached_from("disk") > before

        until(used, 120.0, "B using L2 again")


def patient_transfer(target: L2Target) -> dict[str, Any]:
    """The product's configuration, with deadlines for an L2 beside a busy suite."""
    transfer: dict[str, Any] = kv_transfer_config(L1_BYTES, "lru", target, "cpu")
    (tier,) = transfer["kv_connector_extra_config"]["secondary_tiers"]
    tier |= {"lookup_timeout_ms": 5000, "load_timeout_ms": 5000}
    return transfer


def seat_with_events(
    folder: Path, name: str, transfer: dict[str, object] | None = None, **secrets: str
) -> Seat:
    socket = f"ipc://{folder}/{name}"
    channels = (f"{socket}-kv.sock", f"{socket}-replay.sock")
    worker = Worker(folder, name, transfer, secrets, *SMALL, *events(*channels))
    return Seat(name, worker, *channels)


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A folder for Unix sockets, whose paths have 107 bytes at most."""
    folder = Path(tempfile.mkdtemp(prefix="emb-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _vllm_pair(short_folder: Path) -> Iterator[Pair]:
    folder = short_folder / "pair"
    folder.mkdir()
    pair = Pair(folder, [seat_with_events(folder, name) for name in "ab"])
    try:
        for seat in pair.seats:
            seat.worker.wait_ready()
        yield pair
    finally:
        pair.kill()


@pytest.fixture(scope="module")
def vllm_pair(_vllm_pair: Pair) -> Pair:
    _vllm_pair.start_ended_workers()
    return _vllm_pair


@pytest.fixture(scope="session")
def _vllm_tiered(short_folder: Path) -> Iterator[TieredPair]:
    """The workers start while the cache node is down."""
    folder = short_folder / "tiered"
    folder.mkdir()
    node = CacheNode(folder, memory="1GiB", password=PASSWORD)
    node.kill()
    seats = []
    with FaultProxy(("127.0.0.1", node.port)) as proxy:
        try:
            for name, port in (("a", node.port), ("b", proxy.port)):
                url = f"redis://127.0.0.1:{port}"
                target = L2Target(url, str(short_model_path()), ttl_s=3600)
                secrets = {target.password_env: PASSWORD}
                transfer = patient_transfer(target)
                seats.append(seat_with_events(folder, name, transfer, **secrets))
            for seat in seats:
                seat.worker.wait_ready()
            _answers_without_l2(seats[0].worker)
            node.restart()
            yield TieredPair(folder, seats, node, proxy)
        finally:
            for seat in seats:
                seat.worker.kill()
            node.kill()


def _answers_without_l2(worker: Worker) -> None:
    """L2 absent at the start is a fault like any other."""
    name = "emberline_l2_client_operations_total"
    assert worker.complete(text(500)).status == 200
    until(lambda: worker.metric(name, op="store", result="error") > 0, what="stores that failed")


@pytest.fixture(scope="module")
def vllm_tiered(_vllm_tiered: TieredPair) -> TieredPair:
    if _vllm_tiered.node.process.poll() is not None:
        _vllm_tiered.node.restart()
    _vllm_tiered.start_ended_workers()
    return _vllm_tiered
