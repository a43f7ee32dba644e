"""Faulty connections: each operation ends by its deadline with an outcome, never a wrong byte."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from cachetier.client.address import Address
from cachetier.client.breaker import CircuitBreaker
from cachetier.client.cache_client import CacheClient, KeyOutcome
from tests.support import cachefaults
from tests.support.cachefaults import Fault, FaultProxy
from tests.support.cachenode import CacheNode
from tests.support.ports import free_port
from tests.support.waiting import until

ROW = 400_000
DEADLINE_S = 0.5
# Far above the deadline: a machine may be busy, a wait without end is what must not happen.
NEVER_S = 20.0


@pytest.fixture
def proxy(node: CacheNode) -> Iterator[FaultProxy]:
    with FaultProxy(("127.0.0.1", node.port)) as one:
        yield one


def patient() -> CircuitBreaker:
    """Never opens: these tests are about single operations."""
    return CircuitBreaker(threshold=1_000_000)


def to(port: int, breaker: CircuitBreaker | None = None) -> CacheClient:
    return CacheClient(Address("127.0.0.1", port), breaker=breaker or patient())


def items(count: int) -> list[tuple[bytes, memoryview]]:
    return [(b"k%d" % i, memoryview(os.urandom(ROW))) for i in range(count)]


def places(stored: list[tuple[bytes, memoryview]]) -> list[tuple[bytes, memoryview]]:
    return [(key, memoryview(bytearray(ROW))) for key, _ in stored]


FAULTS: dict[str, Fault] = {
    "silent": cachefaults.silent,
    "cut at once": cachefaults.cut_after(0),
    "cut in the second value": cachefaults.cut_after(ROW + 50_000),
    "truncated in the second value": cachefaults.truncate_after(ROW + 50_000),
    "truncated in a head": cachefaults.truncate_after(9),
    "garbage": cachefaults.garbage,
    "bytes changed in the second value": cachefaults.flip_after(ROW + 50_000),
    "bytes changed from the first on": cachefaults.flip_after(0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_load_over_a_faulty_connection(node: CacheNode, proxy: FaultProxy, name: str) -> None:
    stored = items(3)
    assert to(node.port).store(stored, 60, NEVER_S) == [KeyOutcome.OK] * 3
    client = to(proxy.port)
    proxy.fault = FAULTS[name]
    wanted = places(stored)
    started = time.monotonic()
    outcomes = client.load(wanted, DEADLINE_S)
    assert time.monotonic() - started < NEVER_S
    assert len(outcomes) == 3
    for outcome, (_, got), (_, true) in zip(outcomes, wanted, stored, strict=True):
        assert outcome is not KeyOutcome.OK or got == true
    assert KeyOutcome.OK not in outcomes[1:]
    # The same client is well again as soon as the wire is.
    proxy.fault = cachefaults.passing
    again = places(stored)
    assert client.load(again, NEVER_S) == [KeyOutcome.OK] * 3
    assert [got for _, got in again] == [true for _, true in stored]


@pytest.mark.parametrize("name", ["silent", "cut at once", "garbage"])
def test_lookups_and_stores_over_a_faulty_connection(proxy: FaultProxy, name: str) -> None:
    client = to(proxy.port)
    proxy.fault = FAULTS[name]
    assert KeyOutcome.OK not in client.exists([b"a", b"b"], DEADLINE_S)
    assert KeyOutcome.OK not in client.store(items(2), 60, DEADLINE_S)


def test_node_that_reads_nothing_does_not_block_a_store(tmp_path: object) -> None:
    """Buffers fill up and sending blocks: the send side has a deadline, too."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = to(listener.getsockname()[1])
        big = [(b"k", memoryview(bytearray(64 * 1024 * 1024)))]
        started = time.monotonic()
        assert client.store(big, 60, DEADLINE_S) == [KeyOutcome.TIMEOUT]
        assert time.monotonic() - started < NEVER_S


def test_refused_connection_is_an_immediate_outcome() -> None:
    client = to(free_port())
    assert client.exists([b"a"], NEVER_S) == [KeyOutcome.ERROR]


def test_restarted_node_is_used_without_a_failure(node: CacheNode) -> None:
    """Kept connections are dead then; that is no failure of the node."""
    client = to(node.port, CircuitBreaker(threshold=1))
    assert client.exists([b"a"], NEVER_S) == [KeyOutcome.MISSING]
    node.kill()
    node.restart()
    assert client.exists([b"a"], NEVER_S) == [KeyOutcome.MISSING]
    assert not client.breaker.is_open


def test_breaker_opens_and_closes_again(node: CacheNode) -> None:
    received: list[str] = []
    client = CacheClient(
        Address("127.0.0.1", node.port),
        breaker=CircuitBreaker(threshold=2, first_rest_s=0.05),
        on_change=received.append,
    )
    node.kill()
    assert client.exists([b"a"], NEVER_S) == [KeyOutcome.ERROR]
    assert client.exists([b"a"], NEVER_S) == [KeyOutcome.ERROR]
    assert client.breaker.is_open
    assert client.store(items(1), 60, NEVER_S)[0] in (KeyOutcome.OPEN, KeyOutcome.ERROR)
    node.restart()
    until(lambda: client.exists([b"a"], NEVER_S) == [KeyOutcome.MISSING], what="closed breaker")
    assert len(received) == 2
    assert "circuit breaker opened" in received[0]
    assert "responds again" in received[1]


def test_closing_ends_pending_requests(proxy: FaultProxy) -> None:
    proxy.fault = cachefaults.silent
    client = to(proxy.port)
    outcomes: list[KeyOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.extend(client.exists([b"a"], 3600.0)))
    thread.start()
    until(lambda: proxy.down_bytes > 0, what="the question asked")
    client.close()
    thread.join(NEVER_S)
    assert outcomes == [KeyOutcome.ERROR]


def test_counters_are_consistent(node: CacheNode, proxy: FaultProxy) -> None:
    client = to(proxy.port)
    stored = items(2)
    client.store(stored, 60, NEVER_S)
    client.load(places(stored), NEVER_S)
    client.exists([b"k0", b"no"], NEVER_S)
    assert client.counters.by_outcome == {
        ("store", "ok"): 2,
        ("load", "ok"): 2,
        ("lookup", "ok"): 1,
        ("lookup", "missing"): 1,
    }
