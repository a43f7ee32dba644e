"""Leases: local readers get the exact bytes, which are not reused during the lease."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from cachetier.wire import arena as wire
from tests.cachetier.engine.conftest import Start
from tests.support.cachenode import CacheNode
from tests.support.waiting import until

MIB = 1024 * 1024


@pytest.fixture
def shared(start: Start) -> Iterator[CacheNode]:
    name = f"emberline-test-{os.getpid()}-{secrets.token_hex(4)}"
    yield start("--shm", name, memory="16MiB")
    Path(wire.FOLDER, name).unlink(missing_ok=True)


def client(node: CacheNode, version: int = 2) -> redis.Redis:
    return redis.Redis(port=node.port, protocol=version)


def lease(db: redis.Redis, *keys: str, ms: int = 60_000) -> Any:
    return db.execute_command("LEASE", ms, *keys)


class Reader:
    """What a client does with an answer: map the file, compare the token, copy."""

    def __init__(self, name: bytes, token: bytes) -> None:
        with Path(wire.FOLDER, name.decode()).open("rb") as file:
            self.memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        header = wire.unpack(self.memory[: wire.HEADER_BYTES])
        assert header is not None and header.token == token

    def read(self, answer: list[Any]) -> bytes:
        length, *places = answer
        value = b"".join(self.memory[at : at + size] for at, size in places)
        assert len(value) == length
        return value


@pytest.mark.parametrize("version", [2, 3])
def test_leased_bytes_are_at_their_offset(shared: CacheNode, version: int) -> None:
    db = client(shared, version)
    values = {f"k{size}": os.urandom(size) for size in (16_384, 100_000, MIB, MIB + 1)}
    for key, value in values.items():
        db.set(key, value)
    db.set("short", b"x" * 100)
    number, name, token, answers = lease(db, *values, "none", "short")
    reader = Reader(name, token)
    assert [reader.read(one) for one in answers[:4]] == list(values.values())
    assert answers[4:] == [None, [100]]
    assert shared.metric("emberline_l2_leased_bytes") == sum(map(len, values.values()))
    assert db.execute_command("UNLEASE", number) == 1
    assert db.execute_command("UNLEASE", number) == 0
    assert shared.metric("emberline_l2_leased_bytes") == 0


def test_leased_memory_is_not_reused(shared: CacheNode) -> None:
    db = client(shared)
    value = os.urandom(MIB)
    db.set("k", value)
    number, name, token, answers = lease(db, "k")
    reader = Reader(name, token)
    assert db.set("k", os.urandom(MIB))
    assert db.delete("k") == 1
    for index in range(40):
        assert db.set(f"other{index}", os.urandom(MIB))
    assert reader.read(answers[0]) == value
    assert shared.metric("emberline_l2_used_bytes") <= 16 * MIB
    db.execute_command("UNLEASE", number)
    for index in range(20):
        db.set(f"more{index}", b"\0" * MIB)
    assert reader.read(answers[0]) != value, "the place was never used again"


@pytest.mark.parametrize("end", ["time", "connection", "killed"])
def test_lease_expires_without_a_release(shared: CacheNode, end: str) -> None:
    db, other = client(shared), client(shared)
    db.set("k", os.urandom(MIB))
    holder = db.client()  # one connection, which holds the lease
    holder.execute_command("LEASE", 50 if end == "time" else 60_000, "k")
    if end == "connection":
        holder.connection.disconnect()
    elif end == "killed":
        other.client_kill_filter(_id=holder.client_id())
    until(lambda: shared.metric("emberline_l2_leases") == 0, what="the lease ended")
    assert shared.metric("emberline_l2_leased_bytes") == 0
    assert shared.metric("emberline_l2_leases_expired_total") == int(end == "time")


def test_lease_is_released_only_by_its_owner(shared: CacheNode) -> None:
    one, two = client(shared).client(), client(shared).client()
    one.set("k", os.urandom(MIB))
    number = one.execute_command("LEASE", 60_000, "k")[0]
    assert two.execute_command("UNLEASE", number) == 0
    assert one.execute_command("UNLEASE", number) == 1


def test_leases_cannot_pin_all_memory(shared: CacheNode) -> None:
    db = client(shared)
    for index in range(8):
        db.set(f"k{index}", os.urandom(MIB))
    answers = lease(db, *(f"k{index}" for index in range(8)))[3]
    assert [len(one) > 1 for one in answers] == [True] * 4 + [False] * 4
    assert answers[7] == [MIB]
    assert shared.metric("emberline_l2_leases_refused_total") == 4
    assert db.set("another", os.urandom(2 * MIB))


def test_without_shared_memory_nothing_is_leased(start: Start) -> None:
    with pytest.raises(redis.ResponseError, match="start it with --shm NAME"):
        lease(client(start()), "k")


@pytest.mark.parametrize("ms", ["0", "-1", "60001", "x"])
def test_lease_has_a_maximum_duration(shared: CacheNode, ms: str) -> None:
    with pytest.raises(redis.ResponseError, match=r"1 to 60000 milliseconds|not an integer"):
        client(shared).execute_command("LEASE", ms, "k")


def test_stopping_node_removes_its_arena(shared: CacheNode) -> None:
    name = client(shared).execute_command("LEASE", 1000, "k")[1]
    assert Path(wire.FOLDER, name.decode()).exists()
    assert shared.stop() == 0
    assert not Path(wire.FOLDER, name.decode()).exists()
