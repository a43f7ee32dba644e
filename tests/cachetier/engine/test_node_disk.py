"""Node with a disk over real sockets, including restarts."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from cachetier.wire import envelope
from tests.cachetier.engine.conftest import Start
from tests.support.cachenode import ROOT, CacheNode
from tests.support.waiting import until

MIB = 1024 * 1024


def block(number: int, namespace: str = "aa") -> tuple[bytes, bytes]:
    key = envelope.block_key(namespace, 0, number.to_bytes(4, "big"))
    body = random.Random(number).randbytes(300_000)
    return key, envelope.pack_header(key, body) + body


def client(node: CacheNode, **options: int) -> redis.Redis:
    return redis.Redis.from_url(node.url, socket_timeout=60, **options)


def settle(node: CacheNode) -> None:
    until(lambda: node.metric("emberline_l2_disk_waiting_bytes") == 0, what="the writer")


def fill(node: CacheNode, count: int) -> None:
    """No quicker than the disk is."""
    with client(node) as one:
        for number in range(count):
            assert one.set(*block(number))
            if not number % 5:
                settle(node)
    settle(node)


def found(node: CacheNode, count: int) -> int:
    """How many are there; each of them is what was put."""
    with client(node) as one:
        values = [one.get(block(number)[0]) for number in range(count)]
    assert all(value in (None, block(number)[1]) for number, value in enumerate(values))
    return sum(value is not None for value in values)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "l2"


@pytest.fixture
def node(start: Start, disk: Path) -> CacheNode:
    return start("--disk", f"{disk}:128MiB", "--policy", "lru", memory="16MiB")


def test_values_beyond_memory_are_on_disk(node: CacheNode) -> None:
    fill(node, 100)  # 30 MB through 16 MiB
    assert node.metric("emberline_l2_used_bytes", medium="memory") <= 16 * MIB
    assert node.metric("emberline_l2_blocks", medium="nvme") >= 45
    assert found(node, 100) == 100
    with client(node) as one:
        assert one.dbsize() == 100
        assert len(set(one.scan_iter(count=1000))) == 100
        assert one.exists(*(block(number)[0] for number in range(100))) == 100
        assert one.info("disk")["disk_state"] == "ok"
        assert one.strlen(block(3)[0]) == len(block(3)[1])
        assert one.getrange(block(3)[0], 1000, 1009) == block(3)[1][1000:1010]
        many = one.mget([block(number)[0] for number in (0, 99, 1)])
        assert many == [block(0)[1], block(99)[1], block(1)[1]]
    assert node.page("/healthz") == "ok\n"


def test_second_use_promotes_a_value(node: CacheNode) -> None:
    fill(node, 60)
    key, value = block(5)
    with client(node) as one:
        assert one.get(key) == value
        assert node.metric("emberline_l2_disk_promoted_blocks_total") == 0
        reads = node.metric("emberline_l2_disk_reads_total", result="ok")
        assert one.get(key) == value
        assert node.metric("emberline_l2_disk_promoted_blocks_total") == 1
        assert one.get(key) == value
        assert node.metric("emberline_l2_disk_reads_total", result="ok") == reads + 1


def test_short_promoted_value_takes_no_page(node: CacheNode) -> None:
    with client(node) as one:
        assert one.set("short", b"v" * 500)
        fill(node, 80)
        used = node.metric("emberline_l2_used_bytes", medium="memory")
        for _ in range(3):
            assert one.get("short") == b"v" * 500
    assert node.metric("emberline_l2_disk_promoted_blocks_total") == 1
    assert node.metric("emberline_l2_used_bytes", medium="memory") < used + 2000


def test_killed_node_reopens_its_disk(node: CacheNode) -> None:
    with client(node) as one:
        for name in ("plain", "risen"):
            one.set(name, b"old" * 100_000)
        fill(node, 100)
        assert one.get("risen") == one.get("risen") == b"old" * 100_000
        assert node.metric("emberline_l2_disk_promoted_blocks_total") == 1
        assert one.set("risen", b"new" * 100_000)
        assert node.metric("emberline_l2_disk_written_blocks_total") >= 40
        assert one.delete(block(1)[0], block(2)[0]) == 2
        assert one.set("plain", b"new" * 100_000)  # in memory only, from now on
        assert one.expire(block(4)[0], 500)
    node.kill()
    node.restart()
    with client(node) as one:
        assert one.get(block(1)[0]) is None
        assert one.exists(block(2)[0], "plain", "risen") == 0
        assert 400 < one.ttl(block(4)[0]) <= 500
    assert found(node, 100) >= 35


def test_stopped_node_keeps_its_memory_contents(node: CacheNode) -> None:
    fill(node, 30)  # it all fits
    assert node.metric("emberline_l2_blocks", medium="nvme") == 0
    assert node.stop() == 0
    node.restart()
    assert node.metric("emberline_l2_blocks", medium="nvme") == 30
    assert found(node, 30) == 30
    assert json.loads(node.page("/stats"))["disk"]["entries"] == 30


def test_flushed_namespace_stays_flushed(start: Start, disk: Path) -> None:
    node = start("--disk", f"{disk}:128MiB", "--allow-flush", memory="8MiB")
    fill(node, 60)
    with client(node) as one:
        assert one.flushall()
    node.kill()
    node.restart()
    assert found(node, 60) == 0


def test_disconnected_waiting_client_pins_nothing(node: CacheNode) -> None:
    fill(node, 60)
    for _ in range(3):
        with client(node) as one:
            sender = one.connection_pool.get_connection()
            sender.send_command("MGET", *(block(number)[0] for number in range(30)))
            sender.disconnect()
    assert found(node, 60) == 60
    with client(node) as one:
        one.delete(*(block(number)[0] for number in range(60)))
    # A segment is removed after its last reader; nothing of the receiving memory is kept either.
    until(lambda: node.metric("emberline_l2_disk_segments") <= 1, what="the segments")
    assert node.metric("emberline_l2_used_bytes", medium="memory") == 0


def test_removed_folder_leaves_memory(node: CacheNode, disk: Path) -> None:
    fill(node, 60)
    shutil.rmtree(disk)
    until(lambda: "disk gone" in node.page("/healthz"), what="the node to notice")
    assert node.metric("emberline_l2_disk_state", state="gone") == 1
    assert found(node, 60) >= 30
    until(lambda: node.page("/healthz") == "ok\n", what="the node to make a new one")
    fill(node, 60)
    assert found(node, 60) >= 60


def test_two_nodes_on_one_folder(node: CacheNode, disk: Path) -> None:
    argv = [sys.executable, "-m", "cachetier.engine", "--listen", "127.0.0.1:0"]
    argv += ["--memory", "8MiB", "--disk", f"{disk}:128MiB"]
    second = subprocess.run(argv, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert second.returncode == 2
    assert b"in use by another cache node" in second.stderr
    assert node.process.poll() is None
