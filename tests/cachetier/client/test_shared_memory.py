"""Reads through shared memory, and the fallback to the socket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cachetier.client import cache_client
from cachetier.client.address import Address
from cachetier.client.cache_client import CacheClient
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.shared_memory import SharedMemory, SharedMemoryUnavailable, parse_lease
from tests.support.cachenode import CacheNode
from tests.support.leasingnode import LeasingNode

ROW = 100_000
LONG_S = 60.0


@pytest.fixture
def leasing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeasingNode]:
    monkeypatch.setattr(cache_client, "SharedMemory", lambda: SharedMemory(str(tmp_path)))
    node = LeasingNode(tmp_path)
    yield node
    node.close()


def client_of(node: LeasingNode | CacheNode) -> CacheClient:
    return CacheClient(Address("127.0.0.1", node.port))


def load(client: CacheClient, *keys: bytes) -> tuple[list[KeyOutcome], list[bytes]]:
    places = [memoryview(bytearray(ROW)) for _ in keys]
    outcomes = client.load(list(zip(keys, places, strict=True)), LONG_S)
    return outcomes, [bytes(place) for place in places]


def test_values_in_one_or_many_runs_are_read_and_the_lease_released(leasing: LeasingNode) -> None:
    bodies = [os.urandom(ROW) for _ in range(4)]
    for number, cuts in enumerate([(), (64,), (10, 64, 70, 50_000), (1,)]):
        leasing.put(b"k%d" % number, bodies[number], *cuts)
    client = client_of(leasing)
    outcomes, got = load(client, b"k0", b"k1", b"k2", b"k3")
    assert outcomes == [KeyOutcome.OK] * 4
    assert got == bodies
    assert leasing.commands == [b"LEASE", b"UNLEASE"]
    assert leasing.unleased == [b"1"]
    assert client.counters.by_shared == {"ok": 4}
    assert client.counters.bytes_loaded == 4 * ROW


def test_unleased_values_come_over_the_socket(leasing: LeasingNode) -> None:
    body = os.urandom(ROW)
    leasing.put(b"there", body)
    client = client_of(leasing)
    outcomes, got = load(client, b"missing", b"there")
    assert outcomes == [KeyOutcome.MISSING, KeyOutcome.OK]
    assert got[1] == body
    assert client.counters.by_shared == {"ok": 1, "not_leased": 1}


@pytest.mark.parametrize("place", [0, 30, 64, ROW // 2, ROW + 63])
def test_changed_byte_is_corrupt(leasing: LeasingNode, place: int) -> None:
    leasing.put(b"k", os.urandom(ROW))
    ((offset, _),) = leasing.values[b"k"]
    with leasing.path.open("r+b") as file:
        file.seek(offset + place)
        byte = file.read(1)
        file.seek(offset + place)
        file.write(bytes([byte[0] ^ 1]))
    assert load(client_of(leasing), b"k")[0] == [KeyOutcome.CORRUPT]


def test_value_of_another_key_is_corrupt(leasing: LeasingNode) -> None:
    leasing.put(b"k", os.urandom(ROW))
    leasing.values[b"other"] = leasing.values[b"k"]
    assert load(client_of(leasing), b"other")[0] == [KeyOutcome.CORRUPT]


def test_value_of_another_length_is_corrupt(leasing: LeasingNode) -> None:
    leasing.put(b"k", os.urandom(ROW + 1))
    assert load(client_of(leasing), b"k")[0] == [KeyOutcome.CORRUPT]


def test_truncated_arena_kills_no_process(leasing: LeasingNode) -> None:
    """With a mapping this would be SIGBUS."""
    leasing.put(b"k", os.urandom(ROW))
    with leasing.path.open("r+b") as file:
        file.truncate(leasing.values[b"k"][0][0] + 1000)
    client = client_of(leasing)
    outcomes, _ = load(client, b"k")
    assert outcomes != [KeyOutcome.OK]
    assert client.counters.by_shared == {"not_leased": 1}


@pytest.mark.parametrize("why", ["other_machine", "stale_arena", "bad_answer", "off"])
def test_without_shared_memory_values_come_over_the_socket(leasing: LeasingNode, why: str) -> None:
    body = os.urandom(ROW)
    leasing.put(b"k", body)
    if why == "other_machine":
        leasing.name = "elsewhere"
    elif why == "stale_arena":
        leasing.write_header(os.urandom(16))
    elif why == "bad_answer":
        leasing.lease_reply = b"*1\r\n:1\r\n"
    else:
        leasing.lease_reply = b"-ERR this node shares no memory\r\n"
    client = client_of(leasing)
    for _ in range(3):
        assert load(client, b"k") == ([KeyOutcome.OK], [body])
    assert client.counters.by_shared == {why: 3}
    assert leasing.commands.count(b"LEASE") == 1, "not asked again at once"
    assert client.counters.by_outcome == {("load", "ok"): 3}


def test_shared_memory_is_retried_after_a_pause(
    leasing: LeasingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachetier.client.shared_memory.PAUSE_S", 0.0)
    leasing.put(b"k", os.urandom(ROW))
    leasing.lease_reply = b"-ERR unknown command 'LEASE'\r\n"
    client = client_of(leasing)
    load(client, b"k")
    leasing.lease_reply = None
    load(client, b"k")
    assert client.counters.by_shared == {"unknown_command": 1, "ok": 1}


def held(arena: Path) -> int:
    """How many descriptors of this process lead to it, also to one that was unlinked; others come
    and go with other threads."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += str(entry.readlink()).startswith(str(arena))
    return found


def test_restarted_node_has_a_new_arena(leasing: LeasingNode) -> None:
    leasing.put(b"k", os.urandom(ROW))
    client = client_of(leasing)
    assert load(client, b"k")[0] == [KeyOutcome.OK]
    before = held(leasing.path)
    for _ in range(5):
        leasing.token = os.urandom(16)
        leasing.path.unlink()
        leasing.path.write_bytes(bytes(200_000))
        leasing.write_header(leasing.token)
        body = os.urandom(ROW)
        leasing.put(b"k", body)
        assert load(client, b"k") == ([KeyOutcome.OK], [body])
    assert held(leasing.path) <= before
    client.close()


@pytest.mark.parametrize("name", ["../arena", ".hidden", ""])
def test_arena_name_outside_the_folder_is_rejected(leasing: LeasingNode, name: str) -> None:
    leasing.put(b"k", os.urandom(ROW))
    leasing.name = name
    client = client_of(leasing)
    assert load(client, b"k")[0] == [KeyOutcome.OK]
    assert client.counters.by_shared == {"bad_answer": 1}


def test_symbolic_link_is_not_followed(leasing: LeasingNode, tmp_path: Path) -> None:
    leasing.put(b"k", os.urandom(ROW))
    (tmp_path / "link").symlink_to(leasing.path)
    leasing.name = "link"
    client = client_of(leasing)
    assert load(client, b"k")[0] == [KeyOutcome.OK]
    assert client.counters.by_shared == {"no_access": 1}


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"OK",
        [1, b"a", b"t"],
        [1, b"a", b"t", []],
        [1, b"a", b"t", [[10, [0, 9]]]],
        [1, b"a", b"t", [[10, [-1, 10]]]],
        [1, b"a", b"t", [[0]], 5],
        [1, b"a", b"t", [[5, [0]]]],
        [1, b"a", b"t", [b"x"]],
        [b"1", b"a", b"t", [None]],
    ],
)
def test_invalid_lease_responses(reply: object) -> None:
    with pytest.raises(SharedMemoryUnavailable):
        parse_lease(reply, 1)


def test_short_values_are_not_leased(leasing: LeasingNode) -> None:
    leasing.put(b"k", bytes(100))
    client = client_of(leasing)
    view = memoryview(bytearray(100))
    assert client.load([(b"k", view)], LONG_S) == [KeyOutcome.OK]
    assert leasing.commands == [b"GET"]


# -- with a real node --------------------------------------------------------------------------
def test_emberline_node_is_read_through_shared_memory(tmp_path: Path) -> None:
    name = f"emberline-test-{os.getpid()}"
    node = CacheNode(tmp_path, "--shm", name)
    try:
        client = client_of(node)
        keys = [b"emb1:ns:0:%02x" % number for number in range(6)]
        bodies = [os.urandom(ROW) for _ in keys]
        views = [memoryview(body) for body in bodies]
        assert client.store(list(zip(keys, views, strict=True)), 60, LONG_S) == [KeyOutcome.OK] * 6
        for _ in range(3):
            assert load(client, *keys) == ([KeyOutcome.OK] * 6, bodies)
        assert client.counters.by_shared == {"ok": 18}
        node.kill()
        node.restart()
        outcomes, _ = load(client, *keys)
        assert outcomes == [KeyOutcome.MISSING] * 6, "a restarted node is empty, and its arena new"
        client.store(list(zip(keys, views, strict=True)), 60, LONG_S)
        assert load(client, *keys) == ([KeyOutcome.OK] * 6, bodies)
        assert client.counters.by_shared["ok"] == 24
        client.close()
    finally:
        node.kill()
        Path("/dev/shm", name).unlink(missing_ok=True)


def test_emberline_node_without_shared_memory_reports_it(tmp_path: Path) -> None:
    node = CacheNode(tmp_path)
    try:
        client = client_of(node)
        client.store([(b"emb1:ns:0:00", memoryview(bytes(ROW)))], 60, LONG_S)
        assert load(client, b"emb1:ns:0:00")[0] == [KeyOutcome.OK]
        (reason,) = client.counters.by_shared
        assert reason in ("off", "unknown_command")
    finally:
        node.kill()
