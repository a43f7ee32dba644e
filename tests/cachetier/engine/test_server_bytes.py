"""Correct bytes under many clients, slow and killed ones, and evictions."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import urllib.request

import pytest
import redis

from cachetier.wire import envelope
from cachetier.wire.envelope import block_key
from tests.cachetier.engine.conftest import Start
from tests.support.cachenode import CacheNode
from tests.support.waiting import until

MIB = 1024 * 1024
SIZES = (100, 16_383, 16_384, 50_000, 300_000, MIB, 2 * MIB + 17)
_NOISE = os.urandom(4 * MIB)


def value_of(key: str, turn: int) -> bytes:
    """Content derived from key and turn, so that a page of another value is detected."""
    chance = random.Random(f"{key}:{turn}")
    start, size = chance.randrange(MIB), chance.choice(SIZES)
    return f"{key}:{turn:06d}:".encode() + _NOISE[start : start + size]


def check(key: str, got: bytes) -> None:
    turn = int(got[len(key) + 1 : len(key) + 7])
    assert got == value_of(key, turn), f"{key}: not what was stored in turn {turn}"


def client(node: CacheNode) -> redis.Redis:
    return redis.Redis(port=node.port)


def used(node: CacheNode) -> float:
    return node.metric("emberline_l2_used_bytes")


def emptied(node: CacheNode) -> None:
    """Once nothing is stored, nothing is accounted: no hold and no room was lost."""
    client(node).flushall()
    until(lambda: used(node) == 0, what="everything given back")


@pytest.mark.parametrize(("policy", "threads"), [("lru", "0"), ("s3fifo", "4")])
def test_many_clients_and_evictions(start: Start, policy: str, threads: str) -> None:
    flags = ("--policy", policy, "--transfer-threads", threads)
    node = start("--allow-flush", *flags, memory="5MiB")
    wrong: list[str] = []
    hits = [0]

    def work(number: int) -> None:
        db, chance = client(node), random.Random(number)
        try:
            for turn in range(60):
                key = f"key{chance.randrange(12)}"
                if chance.random() < 0.4:
                    with contextlib.suppress(redis.exceptions.OutOfMemoryError):
                        db.set(key, value_of(key, turn))  # all of it may be under way
                elif chance.random() < 0.8:
                    keys = [key, f"key{turn % 12}"]
                    for one, got in zip(keys, db.mget(keys), strict=True):
                        if got is not None:
                            check(one, got)
                            hits[0] += 1
                else:
                    db.delete(key)
        except AssertionError as exc:
            wrong.append(str(exc))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert used(node) <= 5 * MIB
        threads[0].join(0.05)
    for thread in threads:
        thread.join()
    assert not wrong
    assert hits[0] > 20, "nothing was read, so nothing was proven"
    assert node.metric("emberline_l2_evicted_blocks_total", reason="capacity") > 0
    emptied(node)


def test_pipelines_of_long_values(start: Start) -> None:
    node = start("--allow-flush", memory="24MiB")
    db = client(node)
    with db.pipeline(transaction=False) as pipe:
        for turn in range(12):
            for key in ("a", "b"):
                pipe.set(key, value_of(key, turn))
                pipe.get(key)
        answers = pipe.execute()
    assert answers[0::2] == [True] * 24
    assert answers[1::2] == [value_of(key, turn) for turn in range(12) for key in ("a", "b")]
    emptied(node)


def test_slow_reader_gets_its_value_although_evicted(start: Start) -> None:
    """Its value is overwritten, dropped and pushed out while it is being sent."""
    node = start("--allow-flush", memory="40MiB")
    db = client(node)
    first = os.urandom(12 * MIB // 3)
    db.set("k", first)
    with socket.create_connection(("127.0.0.1", node.port), timeout=120) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.sendall(b"GET k\r\n")
        head = slow.recv(4)
        db.set("k", os.urandom(MIB))
        db.delete("k")
        for index in range(60):
            db.set(f"other{index}", os.urandom(MIB))
            assert used(node) <= 40 * MIB
        got = bytearray(head)
        while not got.endswith(b"\r\n") or len(got) < len(first):
            got += slow.recv(300_000)
    assert got == b"$%d\r\n" % len(first) + first + b"\r\n"
    emptied(node)


@pytest.mark.parametrize("sent", [0, 1, 1000, 70_000, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1])
def test_client_killed_while_sending_leaves_nothing(start: Start, sent: int) -> None:
    node = start("--allow-flush")
    db = client(node)
    db.set("k", "old")
    before = used(node)
    whole = bytes(2 * MIB) + b"\r\n"
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as dying:
        dying.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (2 * MIB) + whole[:sent])
        if sent < len(whole):
            until(lambda: used(node) > before, what="room made for it")
    until(lambda: node.metric("emberline_l2_connections") == 1, what="the client gone")
    assert db.get("k") == b"old"
    assert used(node) == before
    emptied(node)


def test_client_killed_while_receiving_releases_its_value(start: Start) -> None:
    node = start("--allow-flush", memory="64MiB")
    db = client(node)
    db.set("k", bytes(8 * MIB))
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as dying:
        dying.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        dying.sendall(b"GET k\r\n" * 3)
        dying.recv(100)
        db.delete("k")
        assert used(node) > 8 * MIB, "still held by who is being sent it"
    until(lambda: used(node) == 0, what="the value let go")
    emptied(node)


# -- values which are not stored ---------------------------------------------------------------
def block(number: int, size: int) -> tuple[bytes, bytes]:
    key, body = block_key("a" * 32, 0, number.to_bytes(4, "big")), os.urandom(size)
    return key, envelope.pack_header(key, body) + body


def test_existing_block_is_not_received_again(start: Start) -> None:
    node = start(memory="4MiB")
    db = client(node)
    key, value = block(1, 3 * MIB)
    assert db.set(key, value, nx=True, ex=100)
    before = used(node)
    with db.pipeline(transaction=False) as pipe:
        for _ in range(5):
            pipe.set(key, value, nx=True, ex=100)
        pipe.get(key)
        answers = pipe.execute()
    assert answers == [None] * 5 + [value]
    assert used(node) == before
    assert node.metric("emberline_l2_evicted_blocks_total") == 0
    assert db.set(key, value, ex=5000), "without NX it is an OK, as the bytes are the same"
    assert db.ttl(key) > 4000


def test_declined_value_is_skipped_and_the_connection_continues(start: Start) -> None:
    node = start(memory="16MiB")
    db = client(node).client()
    with pytest.raises(redis.ResponseError, match="exceeds this node's limit"):
        db.set("k", bytes(17 * MIB))
    assert db.set("k", b"fits")
    assert db.get("k") == b"fits"


def test_long_value_with_an_unmet_condition_is_dropped(start: Start) -> None:
    """NX comes behind the value on the wire: it is known only when all of it was received."""
    node = start("--allow-flush")
    db = client(node)
    first, second = os.urandom(MIB), os.urandom(2 * MIB)
    db.set("k", first)
    before = used(node)
    assert db.set("k", second, nx=True) is None
    assert db.set("none", second, xx=True) is None
    assert db.setnx("k", second) is False
    assert db.get("k") == first
    assert db.exists("none") == 0
    assert used(node) == before
    emptied(node)


def test_growing_and_shrinking_under_readers(start: Start) -> None:
    node = start("--allow-flush", memory="32MiB")
    db = client(node)
    values = {f"k{index}": os.urandom(MIB) for index in range(24)}
    for key, value in values.items():
        db.set(key, value)
    for memory in ("8MiB", "48MiB", "4MiB", "32MiB"):
        resize(node, memory)
        there = [(key, db.get(key)) for key in values]
        assert all(got is None or got == values[key] for key, got in there)
        assert sum(got is not None for _, got in there) * MIB <= node.metric(
            "emberline_l2_capacity_bytes"
        )
        for key, value in list(values.items())[:10]:
            db.set(key, value)
            assert used(node) <= node.metric("emberline_l2_capacity_bytes")
    emptied(node)


def resize(node: CacheNode, memory: str) -> None:
    url = f"http://127.0.0.1:{node.admin_port}/resize?memory={memory}"
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60) as answer:
        assert answer.status in (200, 202)
