"""Pool of nodes as one cache; a broken node affects only its own values."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachetier.client import membership
from cachetier.client.address import Address
from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.pool import CachePool
from cachetier.client.rendezvous import Rendezvous
from tests.support import cachefaults
from tests.support.cachefaults import FaultProxy
from tests.support.cachenode import CacheNode
from tests.support.ports import free_port
from tests.support.waiting import until

ROW = 20_000
LONG_S = 60.0
SHORT_S = 0.4

Stored = list[tuple[bytes, memoryview]]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[CacheNode]]:
    folder = tmp_path_factory.mktemp("three")
    nodes = [CacheNode(folder) for _ in range(3)]
    yield nodes
    for node in nodes:
        node.kill()


@pytest.fixture
def proxies(three: list[CacheNode]) -> Iterator[list[FaultProxy]]:
    proxies = [FaultProxy(("127.0.0.1", node.port)) for node in three]
    yield proxies
    for proxy in proxies:
        proxy.__exit__(None, None, None)


@pytest.fixture
def make() -> Iterator[object]:
    pools: list[CachePool] = []

    def one(*ports: int, replicas: int = 1, received: list[str] | None = None) -> CachePool:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        nodes = Nodes.parse(f"redis://{hosts}?replicas={replicas}")
        pools.append(CachePool(nodes, on_change=None if received is None else received.append))
        return pools[-1]

    yield one
    for pool in pools:
        pool.close()


def items(count: int) -> Stored:
    stem = os.urandom(6).hex()
    return [(f"{stem}-{i}".encode(), memoryview(os.urandom(ROW))) for i in range(count)]


def places(stored: Stored) -> Stored:
    return [(key, memoryview(bytearray(ROW))) for key, _ in stored]


def load(pool: CachePool, stored: Stored, timeout_s: float = LONG_S) -> list[KeyOutcome]:
    """Every value reported as read is, byte for byte, the stored one."""
    wanted = places(stored)
    outcomes = pool.load(wanted, timeout_s)
    for outcome, got, true in zip(outcomes, wanted, stored, strict=True):
        assert outcome is not KeyOutcome.OK or got == true
    return outcomes


def held(node: CacheNode) -> float:
    return node.metric("emberline_l2_blocks")


def moved_in(node: CacheNode) -> float:
    return node.metric("emberline_l2_moved_in_values_total", source="rebalance")


def test_values_are_spread_and_returned(make, three: list[CacheNode]) -> None:
    pool = make(*(node.port for node in three))
    before = [held(node) for node in three]
    stored = items(60)
    assert pool.store(stored, 60, LONG_S) == [KeyOutcome.OK] * 60
    keys = [key for key, _ in stored]
    assert pool.exists([*keys, b"not there"], LONG_S) == [KeyOutcome.OK] * 60 + [KeyOutcome.MISSING]
    assert load(pool, stored) == [KeyOutcome.OK] * 60
    added = [held(node) - was for node, was in zip(three, before, strict=True)]
    assert sum(added) == 60
    assert min(added) > 0  # ports and keys are others each time
    assert pool.counters.by_outcome == {
        ("store", "ok"): 60,
        ("lookup", "ok"): 60,
        ("lookup", "missing"): 1,
        ("load", "ok"): 60,
    }
    assert pool.counters.bytes_loaded == pool.counters.bytes_stored == 60 * ROW
    by_node = pool.by_node()
    assert {name: one.by_outcome["store", "ok"] for name, one in by_node.items()} == {
        f"127.0.0.1:{node.port}": count for node, count in zip(three, added, strict=True)
    }


def test_two_copies_are_on_two_nodes(make, three: list[CacheNode]) -> None:
    pool = make(*(node.port for node in three), replicas=2)
    before = sum(held(node) for node in three)
    stored = items(30)
    assert pool.store(stored, 60, LONG_S) == [KeyOutcome.OK] * 30
    assert sum(held(node) for node in three) - before == 60
    assert pool.counters.bytes_stored == 30 * ROW, "what a caller stored, once"
    assert load(pool, stored) == [KeyOutcome.OK] * 30


@pytest.mark.parametrize("fault", ["silent", "cut", "garbage", "corrupt"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_broken_node_affects_only_its_values(
    make, proxies: list[FaultProxy], fault: str, replicas: int
) -> None:
    pool = make(*(proxy.port for proxy in proxies), replicas=replicas)
    stored = items(30)
    assert pool.store(stored, 60, LONG_S) == [KeyOutcome.OK] * 30
    proxies[0].fault = {
        "silent": cachefaults.silent,
        "cut": cachefaults.cut_after(0),
        "garbage": cachefaults.garbage,
        "corrupt": cachefaults.flip_after(0),
    }[fault]
    broken = f"127.0.0.1:{proxies[0].port}"
    lost = [pool.lane(key) == broken for key, _ in stored]
    assert any(lost)
    assert not all(lost)
    outcomes = load(pool, stored, 6.0)
    expected = [replicas == 2 or not gone for gone in lost]
    assert [outcome is KeyOutcome.OK for outcome in outcomes] == expected


def test_slow_node_leaves_time_for_the_second_copy(make, proxies: list[FaultProxy]) -> None:
    pool = make(*(proxy.port for proxy in proxies), replicas=2)
    stored = items(12)
    pool.store(stored, 60, LONG_S)
    for proxy in proxies[:1]:
        proxy.fault = cachefaults.silent
    started = time.monotonic()
    assert pool.exists([key for key, _ in stored], 6.0) == [KeyOutcome.OK] * 12
    assert time.monotonic() - started < LONG_S


def test_each_node_has_its_own_breaker(make, proxies: list[FaultProxy]) -> None:
    received: list[str] = []
    pool = make(*(proxy.port for proxy in proxies), received=received)
    stored = items(30)
    pool.store(stored, 60, LONG_S)
    proxies[1].fault = cachefaults.garbage
    until(lambda: load(pool, stored) and any(pool.open_breakers().values()), what="open breaker")
    broken = f"127.0.0.1:{proxies[1].port}"
    assert pool.open_breakers() == {
        f"127.0.0.1:{proxy.port}": proxy is proxies[1] for proxy in proxies
    }
    assert not pool.is_open
    outcomes = load(pool, stored)
    assert KeyOutcome.MISSING in outcomes
    assert set(outcomes) == {KeyOutcome.MISSING, KeyOutcome.OK}, "its keys have another node now"
    assert [text for text in received if "circuit breaker opened" in text and broken in text]
    proxies[1].fault = cachefaults.passing
    until(lambda: load(pool, stored) == [KeyOutcome.OK] * 30, what="the node used again")
    assert not any(pool.open_breakers().values())


def test_store_succeeds_if_one_of_two_nodes_accepts(make, three: list[CacheNode]) -> None:
    pool = make(three[0].port, free_port(), replicas=2)
    stored = items(10)
    assert pool.store(stored, 60, LONG_S) == [KeyOutcome.OK] * 10
    assert load(pool, stored) == [KeyOutcome.OK] * 10


def test_empty_request_gives_an_empty_result(make, three: list[CacheNode]) -> None:
    pool = make(*(node.port for node in three))
    assert pool.exists([], LONG_S) == pool.load([], LONG_S) == pool.store([], 0, LONG_S) == []


def test_many_threads_share_one_pool(make, three: list[CacheNode]) -> None:
    pool = make(*(node.port for node in three), replicas=2)
    failures: list[object] = []

    def work() -> None:
        stored = items(9)
        for _ in range(3):
            pool.store(stored, 60, LONG_S)
            if load(pool, stored) != [KeyOutcome.OK] * 9:
                failures.append("not loaded")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


def test_closed_pool_returns_outcomes(make, three: list[CacheNode]) -> None:
    pool = make(*(node.port for node in three))
    stored = items(6)
    pool.store(stored, 60, LONG_S)
    pool.close()
    assert KeyOutcome.OK not in load(pool, stored)
    assert KeyOutcome.OK not in pool.exists([key for key, _ in stored], LONG_S)


def test_closing_ends_pending_requests(make, proxies: list[FaultProxy]) -> None:
    pool = make(*(proxy.port for proxy in proxies))
    for proxy in proxies:
        proxy.fault = cachefaults.silent
    outcomes: list[KeyOutcome] = []
    keys = [key for key, _ in items(90)]  # so many that none of three nodes has none of them
    thread = threading.Thread(target=lambda: outcomes.extend(pool.exists(keys, 3600.0)))
    thread.start()
    until(lambda: all(proxy.down_bytes for proxy in proxies), what="every node asked")
    pool.close()
    thread.join(LONG_S)
    assert len(outcomes) == 90
    assert set(outcomes) <= {KeyOutcome.ERROR, KeyOutcome.NO_NODE}


# -- nodes that come and go --------------------------------------------------------------------
def in_file(path: Path, *nodes: CacheNode) -> None:
    lines = [f"redis://127.0.0.1:{node.port}?name=cache-{node.port}\n" for node in nodes]
    path.with_suffix(".new").write_text("".join(lines))
    path.with_suffix(".new").rename(path)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachetier.client.membership._MIN_REFRESH_INTERVAL_S", 0.02)
    monkeypatch.setattr(
        "cachetier.client.membership._REFRESH_INTERVALS_S",
        {"file": 0.02, "dns": 0.02, "cluster": 0.02},
    )


def test_node_file_is_watched(three: list[CacheNode], tmp_path: Path, hurried: None) -> None:
    received: list[str] = []
    path = tmp_path / "nodes"
    pool = CachePool(Nodes.parse(f"file://{path}"), on_change=received.append)
    try:
        stored = items(40)
        assert pool.store(stored, 60, LONG_S) == [KeyOutcome.NO_NODE] * 40
        assert pool.lane(b"k") == ""
        until(lambda: received, what="a word about the missing file")
        in_file(path, *three[:2])
        until(lambda: len(pool.open_breakers()) == 2, what="two nodes")
        assert pool.store(stored, 60, LONG_S) == [KeyOutcome.OK] * 40
        before = {key: pool.lane(key) for key, _ in stored}

        in_file(path, *three)
        until(lambda: len(pool.open_breakers()) == 3, what="three nodes")
        were = moved_in(three[2])
        moved = {key for key, _ in stored if pool.lane(key) != before[key]}
        assert 0 < len(moved) < 30
        assert {pool.lane(key) for key in moved} == {f"cache-{three[2].port}"}
        assert load(pool, stored) == [KeyOutcome.OK] * 40, "found at the previous owner"
        counted = pool.counters.by_previous
        assert counted["load", "ok"] == len(moved)
        until(lambda: counted.get(("move", "ok")) == len(moved), what="each has moved")
        assert moved_in(three[2]) - were == len(moved)
        assert load(pool, stored) == [KeyOutcome.OK] * 40
        assert counted["load", "ok"] == len(moved), "they are with their owner"

        in_file(path, *three[:2])
        until(lambda: len(pool.open_breakers()) == 2, what="two nodes again")
        assert load(pool, stored) == [KeyOutcome.OK] * 40
        assert f"cache-{three[2].port}" in pool.by_node(), "what it was asked still counts"
    finally:
        pool.close()
    assert any("cannot be looked up" in text for text in received)
    assert any("3 nodes now" in text for text in received)


@pytest.mark.parametrize("text", ["", "nonsense", "redis://a\nredis://a\n"])
def test_invalid_node_file_changes_nothing(
    three: list[CacheNode], tmp_path: Path, hurried: None, text: str
) -> None:
    received: list[str] = []
    path = tmp_path / "nodes"
    in_file(path, *three)
    pool = CachePool(Nodes.parse(f"file://{path}"), on_change=received.append)
    try:
        until(lambda: len(pool.open_breakers()) == 3, what="three nodes")
        path.write_text(text)
        until(lambda: len(received) >= 2, what="a complaint")
        assert len(pool.open_breakers()) == 3
        stored = items(9)
        assert pool.store(stored, 60, LONG_S) == [KeyOutcome.OK] * 9
    finally:
        pool.close()


def test_hostname_is_resolved_again(
    three: list[CacheNode], hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = [Address("127.0.0.1", three[0].port)]
    monkeypatch.setattr("cachetier.client.membership.resolve_addresses", lambda name: tuple(behind))
    pool = CachePool(Nodes.parse("redis://cache.ns.svc?nodes=dns"))
    try:
        until(lambda: len(pool.open_breakers()) == 1, what="one node")
        stored = items(20)
        assert pool.store(stored, 60, LONG_S) == [KeyOutcome.OK] * 20
        behind.append(Address("127.0.0.1", three[1].port))
        until(lambda: len(pool.open_breakers()) == 2, what="two nodes")
        assert 0 < sum(pool.lane(key) != pool.lane(stored[0][0]) for key, _ in stored) < 20
        assert load(pool, stored) == [KeyOutcome.OK] * 20, "also those that moved"
        behind.clear()
        until(lambda: len(pool.open_breakers()) == 2, what="two nodes still")
    finally:
        pool.close()


def test_counters_of_removed_nodes_are_bounded(
    three: list[CacheNode], hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods come and go under new addresses for months; what they counted must not be lost."""
    monkeypatch.setattr("cachetier.client.membership._MAX_LABELLED_NODES", 3)
    members = membership.Membership(Nodes.parse("redis://a:1"), "", None)
    forgotten: list[str] = []
    monkeypatch.setattr(
        "cachetier.client.cache_client.CacheClient.close",
        lambda client: forgotten.append(client.address.label),
    )
    for port in range(1, 20):
        members._replace((Address("127.0.0.1", port),))
        members.clients()[f"127.0.0.1:{port}"].counters.add("load", [KeyOutcome.OK], 10)
    found = members.counters()
    assert len(found) == 4
    assert sum(one.bytes_loaded for one in found.values()) == 190
    assert len(forgotten) == 16, "the last three are still queried for moved keys"
    members.close()


def test_nodes_have_keys_by_their_weight() -> None:
    members = membership.Membership(Nodes.parse("redis://a:1"), "", None)
    members._replace((Address("a", 1, weight=3.0), Address("b", 1)))
    keys = [b"k%d" % number for number in range(400)]
    owners = members.owners(members.placement(), keys, 0)
    assert 270 < owners.count("a:1") < 330
    members.close()


def test_previous_owner_gets_half_of_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        """Lacks every key and keeps the time it was given."""

        def __init__(self) -> None:
            self.seconds: list[float] = []

        def exists(self, keys: list[bytes], timeout_s: float, *_: object) -> list[KeyOutcome]:
            self.seconds.append(timeout_s)
            return [KeyOutcome.MISSING] * len(keys)

    owner, previous = Node(), Node()
    pool = CachePool(Nodes.parse("redis://a:1,b:1"))
    moved = pool._members.placement().replaced(Rendezvous(["a:1"]), time.monotonic())
    monkeypatch.setattr(pool._members, "placement", lambda: moved)
    monkeypatch.setattr(pool._members, "client", {"a:1": owner, "b:1": previous}.get)
    keys = [b"k%d" % number for number in range(20)]
    assert pool.exists(keys, 1000.0) == [KeyOutcome.MISSING] * 20
    assert 900 < owner.seconds[0] <= 1000
    assert 450 < previous.seconds[0] <= 500
    assert pool.counters.by_previous["lookup", "missing"] < 20, "only keys that moved"
    pool.close()
