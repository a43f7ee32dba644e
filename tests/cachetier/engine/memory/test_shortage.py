"""A node to which the system gives no more memory."""

from __future__ import annotations

import math
import resource
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

from cachetier.engine.memory import memory_store, shortage
from cachetier.engine.memory.memory_store import MemoryStore
from cachetier.engine.memory.shortage import MemoryShortage
from cachetier.engine.store import Condition
from tests.support.cachenode import CacheNode

MIB = 2**20


def mapped_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def test_node_without_memory_evicts_and_goes_on(tmp_path: Path) -> None:
    node = CacheNode(tmp_path, memory="512MiB")
    most = mapped_bytes(node.process.pid) + 20 * MIB
    resource.prlimit(node.process.pid, resource.RLIMIT_AS, (most, most))
    refused: list[int] = []

    def fill(number: int) -> None:
        client = redis.Redis(port=node.port, socket_timeout=60)
        for turn in range(20):
            pipeline = client.pipeline(transaction=False)
            for index in range(200):
                pipeline.set(f"{number}:{turn}:{index}", bytes(1000))
            try:
                refused.append(sum(each is not True for each in pipeline.execute(False)))
            except redis.ConnectionError:  # of whoever needed the memory
                refused.append(1)

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < sum(refused) < 0.2 * 8 * 20 * 200
    client = redis.Redis(port=node.port, socket_timeout=60)
    assert client.set("later", bytes(1000)) and client.get("later") == bytes(1000)
    assert node.page("/healthz") == "ok\n"
    assert node.metric("emberline_l2_memory_failures_total") > 0
    assert node.log.read_text().count("The system gave no memory") == 1
    assert node.log.stat().st_size < 4096
    assert node.stop() == 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(shortage, "monotonic", lambda: now[0])
    return now


def test_lasting_shortage_is_no_health_and_ends_the_node(clock: list[float]) -> None:
    shed: list[float] = []
    ends: list[str] = []
    found = MemoryShortage(shed.append, ends.append)
    for _ in range(4):
        found.failed()
        clock[0] += 0.2
        found.tick()
    assert (shed, found.trouble()) == ([1000.0, pytest.approx(1000.6)], "")
    while clock[0] < 1029:
        found.failed()
        found.tick()
        clock[0] += 1
    assert found.trouble().startswith("out of memory since 30")
    assert not ends
    clock[0] = 1031.0
    found.failed()
    assert ends == ["out of memory for 30 s although values were evicted"]
    clock[0] += 11
    assert found.trouble() == ""
    found.failed()
    assert len(ends) == 1, "another shortage"


def test_node_that_cannot_even_evict_ends(clock: list[float]) -> None:
    def shed(_: float) -> None:
        raise MemoryError

    ends: list[str] = []
    found = MemoryShortage(shed, ends.append)
    for _ in range(3):
        found.failed()
    assert not ends
    found.failed()
    assert ends == ["out of memory, and none left to evict values"]


def fails(*_: Any) -> None:
    raise MemoryError


def test_insertion_without_memory_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(8 * MIB, lambda *_: None)
    put: dict[str, Any] = {"now": 0.0, "ttl_s": 5.0, "condition": Condition.ALWAYS}
    for value in (b"short", bytes(100_000)):
        with monkeypatch.context() as patch:
            patch.setattr(store._policy, "added", fails)
            with pytest.raises(MemoryError):
                store.put(b"key", value, **put)
        assert (store.usage().used_bytes, store.usage().entries, store._ends) == (0, 0, {})
        assert store.put(b"key", value, **put) is None
        assert store.drop(b"key", 0.0)
    assert store.usage().used_bytes == 0


def test_store_sheds_an_eighth() -> None:
    store = MemoryStore(8 * MIB, lambda *_: None)
    for index in range(1000):
        store.put(b"%d" % index, bytes(1000), now=0.0, ttl_s=math.inf, condition=Condition.ALWAYS)
    before = store.usage().used_bytes
    store.shed(1.0)
    assert 0.8 * before < store.usage().used_bytes <= store.usage().capacity_bytes < 0.88 * before


def test_system_memory_is_tried_for_growth_outside_the_arena_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trial is 1 MiB; a full cache of long values would make one with every write."""
    monkeypatch.setattr(memory_store, "_PROBE_BYTES", -1)  # a trial raises
    put: dict[str, Any] = {"now": 0.0, "ttl_s": None, "condition": Condition.ALWAYS}
    store = MemoryStore(8 * MIB, lambda *_: None)
    for index in range(1000):
        assert store.put(b"%d" % index, bytes(100_000), **put) is None
    with pytest.raises(ValueError, match="negative"):
        for index in range(1000):
            store.put(b"short %d" % index, bytes(1000), **put)
