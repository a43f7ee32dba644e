"""Background probe: a silent node costs one timeout, not one for each request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from cachetier.client.address import Address
from cachetier.client.breaker import CircuitBreaker
from cachetier.client.cache_client import CacheClient
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.probe import NodeProbe
from tests.support import cachefaults
from tests.support.cachefaults import FaultProxy
from tests.support.cachenode import Valkey
from tests.support.waiting import until

LONG_S = 60.0


class Scripted:
    """A probe whose queries give these problems, "" for a reply."""

    def __init__(self, *problems: str, breaker: CircuitBreaker) -> None:
        self.left = list(problems)
        self.opened: list[str] = []
        self.closed = 0
        self.probe = NodeProbe(breaker, self._query, self.opened.append, self._recovered)

    def _query(self, _seconds: float) -> str:
        return self.left.pop(0)

    def _recovered(self) -> None:
        self.closed += 1


def quick() -> CircuitBreaker:
    return CircuitBreaker(threshold=3, first_rest_s=0.001, longest_rest_s=0.002)


def test_node_in_doubt_is_probed_until_it_responds() -> None:
    breaker = quick()
    one = Scripted("no reply", "no reply", "", breaker=breaker)
    one.probe.start()
    until(lambda: one.closed, what="a reply")
    assert one.opened == ["no reply"], "reported once"
    assert not breaker.is_open
    assert one.left == []


def test_reply_ends_the_probe_and_leaves_the_breaker_closed() -> None:
    one = Scripted("", "never asked", breaker=quick())
    one.probe.start()
    until(lambda: not one.probe._running, what="the end of the probe")
    assert (one.opened, one.closed, one.left) == ([], 0, ["never asked"])


def test_closed_probe_queries_no_more() -> None:
    breaker = CircuitBreaker(threshold=1, first_rest_s=3600.0)
    breaker.failed(time.monotonic())
    one = Scripted(breaker=breaker)
    before = threading.active_count()
    one.probe.start()
    one.probe.start()
    one.probe.close()
    until(lambda: threading.active_count() <= before, what="the end of the thread")
    one.probe.start()
    assert one.left == []


@pytest.fixture
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    server = Valkey(tmp_path_factory.mktemp("probed"))
    with FaultProxy(("127.0.0.1", server.port)) as one:
        yield one
    server.stop()


def test_silent_node_costs_one_timeout_and_is_used_again(proxy: FaultProxy) -> None:
    received: list[str] = []
    client = CacheClient(Address("127.0.0.1", proxy.port), on_change=received.append)
    assert client.exists([b"k"], LONG_S) == [KeyOutcome.MISSING]
    proxy.fault = cachefaults.silent
    assert client.exists([b"k"], 0.05) == [KeyOutcome.TIMEOUT]
    until(lambda: client.breaker.is_open, what="the breaker opened by the probe")
    assert client.exists([b"k"], 3600.0) == [KeyOutcome.OPEN], "nobody waits"
    proxy.fault = cachefaults.passing
    until(lambda: not client.breaker.is_open, what="the breaker closed by the probe")
    assert client.exists([b"k"], LONG_S) == [KeyOutcome.MISSING]
    assert len(received) == 2
    client.close()


def test_time_used_up_elsewhere_is_no_failure_of_the_node(proxy: FaultProxy) -> None:
    client = CacheClient(Address("127.0.0.1", proxy.port), breaker=CircuitBreaker(threshold=1))
    assert client.exists([b"k"], 0.0) == [KeyOutcome.TIMEOUT]
    assert not client.breaker.is_open
    client.close()
