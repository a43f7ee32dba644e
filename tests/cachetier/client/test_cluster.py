"""Slots, redirections, and a real Valkey cluster that migrates a slot."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from cachetier.client.address import Address
from cachetier.client.cluster import SLOTS, Redirect, SlotMap, key_slot, parse_redirect, parse_slots
from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.pool import CachePool
from tests.cachetier.client.conftest import PASSWORD
from tests.support.cachenode import Valkey
from tests.support.ports import free_port
from tests.support.waiting import until

LONG_S = 60.0
HERE = Address("10.0.0.1", 6379, tls=True)


def test_slots_equal_those_of_redis() -> None:
    """Answers of CLUSTER KEYSLOT."""
    assert key_slot(b"123456789") == 12739
    assert key_slot(b"{user1000}.following") == key_slot(b"user1000") == 3443
    assert key_slot(b"foo{}{bar}") == 8363
    assert key_slot(b"foo{{bar}}zap") == key_slot(b"{bar")
    assert key_slot(b"") == 0


def test_redirections_are_parsed() -> None:
    assert parse_redirect("MOVED 3999 127.0.0.1:6381") == Redirect(True, 3999, "127.0.0.1", 6381)
    assert parse_redirect("ASK 1 [::1]:7") == Redirect(False, 1, "::1", 7)
    assert parse_redirect("MOVED 1 :7") == Redirect(True, 1, "", 7)
    wrong = ("ERR no", "MOVED x a:1", "MOVED 1 a", "MOVED 99999 a:1", "MOVED 1 a:b c")
    for text in (*wrong, "MOVED 1 a:65536", "MOVED 1 a/b:1", "MOVED 1 user@a:1"):
        assert parse_redirect(text) is None


def test_redirection_without_a_host_keeps_the_sending_node() -> None:
    assert Redirect(True, 1, "", 7).address(HERE) == Address("10.0.0.1", 7, tls=True)
    assert Redirect(True, 1, "b", 7).address(HERE) == Address("b", 7, tls=True)


def test_slot_tables_are_parsed_and_invalid_entries_skipped() -> None:
    reply = [
        [0, 10, [b"a", 1, b"id"], [b"replica", 2, b"id"]],
        [11, 20, [None, 3, b"id"]],
        [5, 99999, [b"a", 1]],
        [7, 3, [b"a", 1]],
        [21, 22, [b"?", 1]],
        [21, 22, [b"user@a", 1]],
        [23, 24, [b"a", b"port"]],
        "nonsense",
    ]
    assert parse_slots(reply, HERE) == [
        (0, 10, Address("a", 1, tls=True)),
        (11, 20, Address("10.0.0.1", 3, tls=True)),
    ]
    assert parse_slots(b"nonsense", HERE) == []


def test_slot_map_is_updated_by_redirections() -> None:
    slots = SlotMap()
    slots.learn([(0, SLOTS - 1, Address("a", 1))])
    assert slots.owner(b"123456789") == "a:1"
    slots.moved(12739, "b:2")
    assert slots.owner(b"123456789") == "b:2"
    slots.learn([(0, 5, Address("a", 1))])
    assert slots.owner(b"123456789") == ""


class Cluster:
    """Three Valkeys which share the slots."""

    def __init__(self, folder: Path) -> None:
        self.nodes = []
        for number in range(3):
            place = folder / str(number)
            place.mkdir()
            more = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
            self.nodes.append(Valkey(place, *more, password=PASSWORD))
        first = self.raw(0)
        for number in range(3):
            self.raw(number).execute_command("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
            begin, end = number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1
            self.raw(number).execute_command("CLUSTER", "ADDSLOTSRANGE", begin, end)
        for number in range(3):
            until(lambda n=number: "cluster_state:ok" in str(self.info(n)), 60.0, "a whole cluster")
        assert first.ping()

    def raw(self, number: int) -> redis.Redis:
        return redis.Redis(port=self.nodes[number].port, password=PASSWORD)

    def info(self, number: int) -> object:
        return self.raw(number).execute_command("CLUSTER", "INFO")

    def identity(self, number: int) -> str:
        return self.raw(number).execute_command("CLUSTER", "MYID").decode()

    def url(self, *numbers: int) -> str:
        hosts = ",".join(f"127.0.0.1:{self.nodes[number].port}" for number in numbers)
        return f"redis://{hosts}?nodes=cluster"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    one = Cluster(tmp_path_factory.mktemp("cluster"))
    yield one
    for node in one.nodes:
        node.stop()


@pytest.fixture
def pool(cluster: Cluster) -> Iterator[CachePool]:
    for number in range(3):
        cluster.raw(number).flushall()  # a stored key keeps its value
    one = CachePool(Nodes.parse(cluster.url(1)), PASSWORD)
    until(lambda: len(one.open_breakers()) == 3, what="every node known from one seed")
    yield one
    one.close()


def items(prefix: str, count: int) -> list[tuple[bytes, memoryview]]:
    return [(f"{prefix}{i}".encode(), memoryview(os.urandom(30_000))) for i in range(count)]


def places(stored: list[tuple[bytes, memoryview]]) -> list[tuple[bytes, memoryview]]:
    return [(key, memoryview(bytearray(view.nbytes))) for key, view in stored]


def test_values_go_to_the_nodes_of_their_slots(pool: CachePool, cluster: Cluster) -> None:
    stored = items("plain", 30)
    assert pool.store(stored, 60, LONG_S) == [KeyOutcome.OK] * 30
    assert pool.exists([key for key, _ in stored], LONG_S) == [KeyOutcome.OK] * 30
    wanted = places(stored)
    assert pool.load(wanted, LONG_S) == [KeyOutcome.OK] * 30
    assert wanted == stored
    for number, node in enumerate(cluster.nodes):
        ours = [key for key, _ in stored if pool.lane(key) == f"127.0.0.1:{node.port}"]
        assert ours
        assert all(cluster.raw(number).exists(key) for key in ours)
    assert "moved" not in {result for _, result in pool.counters.by_outcome}


def test_migrating_and_moved_slots(pool: CachePool, cluster: Cluster) -> None:
    """ASK while it migrates, MOVED afterwards; the keys are there all along."""
    slot = key_slot(b"{way}0")
    source = next(n for n in range(3) if pool.lane(b"{way}0").endswith(f":{cluster.nodes[n].port}"))
    target = (source + 1) % 3
    stored = items("{way}", 4)
    assert pool.store(stored, 60, LONG_S) == [KeyOutcome.OK] * 4

    cluster.raw(target).execute_command(
        "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.identity(source)
    )
    cluster.raw(source).execute_command(
        "CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.identity(target)
    )
    _migrate(cluster, source, target, [key for key, _ in stored[:2]])
    _all_there(pool, stored)
    late = items("{way}late", 2)
    assert pool.store(late, 60, LONG_S) == [KeyOutcome.OK] * 2
    _all_there(pool, late)

    _migrate(cluster, source, target, [key for key, _ in stored[2:]])
    for number in (target, source):
        cluster.raw(number).execute_command(
            "CLUSTER", "SETSLOT", slot, "NODE", cluster.identity(target)
        )
    _all_there(pool, stored + late)
    assert pool.lane(b"{way}0") == f"127.0.0.1:{cluster.nodes[target].port}"
    assert pool.counters.by_outcome.get(("load", "moved"), 0) == 0


def _migrate(cluster: Cluster, source: int, target: int, keys: list[bytes]) -> None:
    cluster.raw(source).execute_command(
        "MIGRATE",
        *("127.0.0.1", cluster.nodes[target].port, "", 0, 10_000),
        *("AUTH", PASSWORD, "KEYS", *keys),
    )


def _all_there(pool: CachePool, stored: list[tuple[bytes, memoryview]]) -> None:
    assert pool.exists([key for key, _ in stored], LONG_S) == [KeyOutcome.OK] * len(stored)
    wanted = places(stored)
    assert pool.load(wanted, LONG_S) == [KeyOutcome.OK] * len(stored)
    assert wanted == stored


def test_unreachable_seed_is_skipped(cluster: Cluster) -> None:
    url = f"redis://127.0.0.1:{free_port()},127.0.0.1:{cluster.nodes[2].port}?nodes=cluster"
    pool = CachePool(Nodes.parse(url), PASSWORD)
    until(lambda: len(pool.open_breakers()) == 3, what="every node known from the second seed")
    pool.close()


# -- redirections that must not be followed ----------------------------------------------------
class Rogue:
    """A server that takes any password and redirects every key to `target`."""

    def __init__(self, word: str, target: int) -> None:
        self._redirect = f"-{word} 1 127.0.0.1:{target}\r\n".encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.redirected = 0
        self.slot_queries = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as lines, contextlib.suppress(OSError, ValueError):
            while head := lines.readline():
                words = [
                    lines.read(int(lines.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))
                ]
                sock.sendall(self._answer(words[0]))

    def _answer(self, command: bytes) -> bytes:
        if command in (b"AUTH", b"ASKING"):
            return b"+OK\r\n"
        if command == b"CLUSTER":
            self.slot_queries += 1
            me = b"*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % self.port
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n" + me
        self.redirected += 1
        return self._redirect

    def close(self) -> None:
        # shutdown wakes the thread in accept(); close alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.parametrize("word", ["MOVED", "ASK"])
@pytest.mark.parametrize("kind", ["one", "two", "file", "dns", "cluster"])
def test_redirection_to_a_foreign_address_is_rejected(kind: str, word: str, tmp_path: Path) -> None:
    """Neither the password nor a connection goes there, and the batch ends as misses."""
    trap = socket.create_server(("127.0.0.1", 0))
    trap.setblocking(False)
    rogue = Rogue(word, trap.getsockname()[1])
    here = f"127.0.0.1:{rogue.port}"
    (tmp_path / "nodes").write_text(f"redis://{here}\n")
    url = {
        "one": f"redis://{here}",
        "two": f"redis://{here},127.0.0.1:{free_port()}",
        "file": f"file://{tmp_path / 'nodes'}",
        "dns": f"redis://{here}?nodes=dns",
        "cluster": f"redis://{here}?nodes=cluster",
    }[kind]
    received: list[str] = []
    pool = CachePool(Nodes.parse(url), PASSWORD, on_change=received.append)
    try:
        until(lambda: pool.open_breakers(), what="a node")
        stored = items("rogue", 20)
        moved = {
            KeyOutcome.MOVED,
            KeyOutcome.ERROR,
            KeyOutcome.OPEN,
        }  # of the port nobody listens on
        assert {*pool.exists([key for key, _ in stored], LONG_S)} <= moved
        assert {*pool.store(stored, 60, LONG_S)} <= moved
        assert {*pool.load(places(stored), LONG_S)} <= moved
        assert rogue.redirected
        assert pool.counters.by_outcome["load", "moved"]
        if kind == "cluster":  # the slots are read again, and do not list the trap
            known = rogue.slot_queries
            until(lambda: rogue.slot_queries > known, what="another look at the slots")
            until(lambda: any("not followed" in text for text in received), what="a message")
            assert {*pool.load(places(stored), LONG_S)} == {KeyOutcome.MOVED}
        else:
            assert any("nodes=cluster" in text for text in received)
        with pytest.raises(BlockingIOError):
            trap.accept()
    finally:
        pool.close()
        rogue.close()
        trap.close()
