"""Values of moved keys are copied to their owner: life kept, bounded, counted."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import redis

from cachetier.client import moves
from cachetier.client.address import Address
from cachetier.client.cache_client import CacheClient
from cachetier.client.moves import ValueMoves
from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import Counters, KeyOutcome
from cachetier.client.pool import CachePool
from tests.support import cachefaults
from tests.support.cachefaults import FaultProxy
from tests.support.cachenode import Valkey
from tests.support.waiting import until

ROW = 4000
LONG_S = 60.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Valkey]]:
    found = [Valkey(tmp_path_factory.mktemp(f"moves{number}")) for number in range(2)]
    yield found
    for server in found:
        server.stop()


@pytest.fixture
def clients(servers: list[Valkey]) -> Iterator[dict[str, CacheClient]]:
    found = {
        name: CacheClient(Address.parse(one.url)) for name, one in zip("ab", servers, strict=True)
    }
    yield found
    for client in found.values():
        client.close()


def raw(server: Valkey) -> redis.Redis:
    return redis.Redis(port=server.port)


def body() -> memoryview:
    return memoryview(os.urandom(ROW))


def test_value_keeps_its_life_and_stays_where_it_was(
    servers: list[Valkey], clients: dict[str, CacheClient]
) -> None:
    lasting, short, gone = (os.urandom(6).hex().encode() for _ in range(3))
    clients["a"].store([(lasting, body())], 0, LONG_S)
    clients["a"].store([(short, body())], 500, LONG_S)
    counters = Counters()
    one = ValueMoves(clients.get, counters)
    one.start("a", "b", [(lasting, body()), (short, body()), (gone, body())])
    until(lambda: sum(counters.by_previous.values()) == 3, what="all of it")
    assert counters.by_previous == {("move", "ok"): 2, ("move", "failed"): 1}
    assert raw(servers[1]).ttl(lasting) == -1
    assert 100 < raw(servers[1]).ttl(short) <= 500
    assert not raw(servers[1]).exists(gone), "its life is unknown"
    assert raw(servers[0]).exists(lasting, short) == 2
    assert all(one["name"] != "rebalance" for one in raw(servers[1]).client_list())
    one.close()


def test_moves_are_bounded_and_failures_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "_MAX_PENDING_BYTES", 2 * ROW)
    counters = Counters()
    one = ValueMoves(lambda _name: None, counters)
    one.start("a", "b", [(b"k", body())] * 3)
    assert counters.by_previous == {("move", "dropped"): 3}
    one.start("a", "b", [(b"k", body())] * 2)
    until(lambda: counters.by_previous.get(("move", "failed")) == 2, what="nodes that are gone")
    until(lambda: not one._pending_bytes, what="nothing pending")
    one.close()
    one.start("a", "b", [(b"k", body())])  # a closed pool ignores it


def test_keys_of_a_dead_node_have_another_node_until_it_returns(servers: list[Valkey]) -> None:
    """Stored while it is away, found when it is back, and then moved to it."""
    with FaultProxy(("127.0.0.1", servers[0].port)) as proxy:
        nodes = Nodes.parse(f"redis://127.0.0.1:{proxy.port},127.0.0.1:{servers[1].port}")
        pool = CachePool(nodes)
        first = f"127.0.0.1:{proxy.port}"
        stem = os.urandom(6).hex().encode()
        keys = [b"%s-%d" % (stem, number) for number in range(40)]
        theirs = [key for key in keys if pool.lane(key) == first]
        assert 0 < len(theirs) < 40
        items = [(key, body()) for key in theirs]
        proxy.fault = cachefaults.garbage
        until(
            lambda: pool.exists(keys, LONG_S) and pool.open_breakers()[first],
            what="an open breaker",
        )
        assert pool.store(items, 0, LONG_S) == [KeyOutcome.OK] * len(items)
        assert pool.exists(theirs, LONG_S) == [KeyOutcome.OK] * len(items)

        proxy.fault = cachefaults.passing
        until(lambda: not pool.open_breakers()[first], what="the node is back")
        assert {pool.lane(key) for key in theirs} == {first}
        places = [(key, memoryview(bytearray(ROW))) for key in theirs]
        assert pool.load(places, LONG_S) == [KeyOutcome.OK] * len(items)
        assert places == items
        until(
            lambda: pool.counters.by_previous.get(("move", "ok")) == len(items),
            what="the values have moved",
        )
        assert raw(servers[0]).exists(*theirs) == len(items)
        pool.close()
