"""Cache client against our node and Valkey, with equal results."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator

import pytest
import redis

from cachetier.client.address import Address
from cachetier.client.cache_client import CacheClient, KeyOutcome
from cachetier.wire import envelope
from tests.cachetier.client.conftest import PASSWORD
from tests.support.cachenode import CacheNode, Valkey

ROW = 300_000
LONG_S = 60.0


@pytest.fixture
def client(cache: CacheNode | Valkey) -> Iterator[CacheClient]:
    one = CacheClient(Address.parse(cache.url), PASSWORD)
    yield one
    one.close()


@pytest.fixture
def raw(cache: CacheNode | Valkey) -> redis.Redis:
    return redis.Redis(port=cache.port, password=PASSWORD)


def fresh(count: int) -> list[bytes]:
    return [f"emb1:{uuid.uuid4().hex}:0:{i:02x}".encode() for i in range(count)]


def rows(count: int) -> list[memoryview]:
    return [memoryview(os.urandom(ROW)) for _ in range(count)]


def empty(count: int) -> list[memoryview]:
    return [memoryview(bytearray(ROW)) for _ in range(count)]


def pairs(keys: list[bytes], views: list[memoryview]) -> list[tuple[bytes, memoryview]]:
    return list(zip(keys, views, strict=True))


def test_stored_values_are_loaded(client: CacheClient) -> None:
    keys, bodies, places = fresh(7), rows(7), empty(7)
    assert client.store(pairs(keys, bodies), 60, LONG_S) == [KeyOutcome.OK] * 7
    assert client.exists(keys, LONG_S) == [KeyOutcome.OK] * 7
    assert client.load(pairs(keys, places), LONG_S) == [KeyOutcome.OK] * 7
    assert places == bodies
    assert client.counters.bytes_loaded == client.counters.bytes_stored == 7 * ROW


def test_absent_keys_are_missing(client: CacheClient) -> None:
    keys, there = fresh(3), fresh(1)
    client.store([(there[0], rows(1)[0])], 60, LONG_S)
    mixed = [keys[0], there[0], keys[1]]
    wanted = [KeyOutcome.MISSING, KeyOutcome.OK, KeyOutcome.MISSING]
    assert client.exists(mixed, LONG_S) == wanted
    assert client.load(pairs(mixed, empty(3)), LONG_S) == wanted


def test_empty_request_gives_an_empty_result(client: CacheClient) -> None:
    assert client.exists([], LONG_S) == []
    assert client.load([], LONG_S) == []
    assert client.store([], 0, LONG_S) == []


def test_first_value_of_a_key_stays(client: CacheClient) -> None:
    (key,), (first, second), (place,) = fresh(1), rows(2), empty(1)
    assert client.store([(key, first)], 60, LONG_S) == [KeyOutcome.OK]
    assert client.store([(key, second)], 60, LONG_S) == [KeyOutcome.OK]
    client.load([(key, place)], LONG_S)
    assert place == first


def test_value_has_its_ttl(client: CacheClient, raw: redis.Redis) -> None:
    short, ever = fresh(2)
    client.store([(short, rows(1)[0])], 100, LONG_S)
    client.store([(ever, rows(1)[0])], 0, LONG_S)
    assert 90 < raw.ttl(short) <= 100
    assert raw.ttl(ever) == -1


@pytest.mark.parametrize("place", [0, 4, 16, 30, envelope.HEADER_BYTES, ROW])
def test_corrupt_value_does_not_affect_its_batch(
    client: CacheClient, cache: CacheNode | Valkey, raw: redis.Redis, place: int
) -> None:
    keys, bodies, places = fresh(3), rows(3), empty(3)
    client.store(pairs(keys, bodies), 60, LONG_S)
    value = bytearray(raw.get(keys[1]))
    value[place] ^= 0x40
    raw.delete(keys[1])  # our node keeps the first value of a block for ever
    try:
        raw.set(keys[1], bytes(value))
    except redis.ResponseError:
        assert isinstance(cache, CacheNode), "only our node looks at the envelope"
        assert client.load([(keys[1], places[1])], LONG_S) == [KeyOutcome.MISSING]
        return
    outcomes = client.load(pairs(keys, places), LONG_S)
    assert outcomes == [KeyOutcome.OK, KeyOutcome.CORRUPT, KeyOutcome.OK]
    assert (places[0], places[2]) == (bodies[0], bodies[2])
    assert client.store(pairs(keys, bodies), 60, LONG_S) == [KeyOutcome.OK] * 3
    assert client.load(pairs(keys, places), LONG_S) == [KeyOutcome.OK] * 3, "it was replaced"
    assert places == bodies


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, ROW, ROW + 63, ROW + 65, ROW * 2])
def test_value_of_another_length_is_corrupt(
    client: CacheClient, raw: redis.Redis, length: int
) -> None:
    key, after = b"not-a-block:" + fresh(1)[0], fresh(1)[0]
    raw.set(key, b"x" * length)
    client.store([(after, rows(1)[0])], 60, LONG_S)
    outcomes = client.load(pairs([key, after], empty(2)), LONG_S)
    assert outcomes == [KeyOutcome.CORRUPT, KeyOutcome.OK]
    assert client.exists([key, after], LONG_S) == [KeyOutcome.MISSING, KeyOutcome.OK]


def test_user_who_may_not_delete_reads_on(
    cache: CacheNode | Valkey, client: CacheClient, raw: redis.Redis
) -> None:
    if isinstance(cache, CacheNode):
        with pytest.raises(redis.ResponseError):  # it has no permissions by command
            raw.execute_command("ACL", "SETUSER", "default", "-del")
        return
    key, after = b"not-a-block:" + fresh(1)[0], fresh(1)[0]
    raw.set(key, b"x" * ROW)
    client.store([(after, rows(1)[0])], 60, LONG_S)
    raw.execute_command("ACL", "SETUSER", "default", "-del")
    try:
        for _ in range(2):
            outcomes = client.load(pairs([key, after], empty(2)), LONG_S)
            assert outcomes == [KeyOutcome.CORRUPT, KeyOutcome.OK]
    finally:
        raw.execute_command("ACL", "SETUSER", "default", "+del")


def test_many_threads_share_one_client(client: CacheClient) -> None:
    failures: list[object] = []

    def work() -> None:
        keys, bodies, places = fresh(5), rows(5), empty(5)
        for _ in range(3):
            client.store(pairs(keys, bodies), 60, LONG_S)
            if client.load(pairs(keys, places), LONG_S) != [KeyOutcome.OK] * 5:
                failures.append("not loaded")
            if places != bodies:
                failures.append("wrong bytes")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


def test_wrong_password_is_an_outcome(cache: CacheNode | Valkey) -> None:
    received: list[str] = []
    client = CacheClient(Address.parse(cache.url), "wrong", on_change=received.append)
    for _ in range(3):
        assert client.exists(fresh(1), LONG_S) == [KeyOutcome.ERROR]
    assert client.exists(fresh(1), LONG_S) == [KeyOutcome.OPEN]
    assert len(received) == 1
    assert "WRONGPASS" in received[0]
    assert "wrong" not in received[0].replace("WRONGPASS", "")


def test_missing_password_is_an_outcome(cache: CacheNode | Valkey) -> None:
    client = CacheClient(Address.parse(cache.url))
    assert client.exists(fresh(2), LONG_S) == [KeyOutcome.ERROR] * 2


def test_rejected_value_is_an_outcome_and_the_connection_stays_open(
    client: CacheClient, cache: CacheNode | Valkey
) -> None:
    """17 MiB are more than our node of 64 MiB takes at once, and fine with Valkey."""
    large, after = memoryview(bytearray(17 * 1024 * 1024)), rows(1)[0]
    batch = [(fresh(1)[0], large), (fresh(1)[0], after)]
    refused = KeyOutcome.REFUSED if isinstance(cache, CacheNode) else KeyOutcome.OK
    assert client.store(batch, 60, 60.0) == [refused, KeyOutcome.OK]
    assert not client.breaker.is_open


def test_closed_client_returns_outcomes(client: CacheClient) -> None:
    client.exists(fresh(1), LONG_S)
    client.close()
    assert client.exists(fresh(1), LONG_S) == [KeyOutcome.ERROR]
