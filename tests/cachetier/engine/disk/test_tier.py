"""Disk tier: evicted values are found again; dropped, flushed and expired ones are not."""

from __future__ import annotations

import contextlib
import math
import os
import random
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachetier.engine.disk.counters import DiskDecline, ReadOutcome
from cachetier.engine.disk.folder import FolderInUseError
from cachetier.engine.disk.values import StoredValue
from cachetier.engine.store import Declined as Refused
from cachetier.engine.store import DeclineReason, Hold
from cachetier.wire import envelope
from tests.cachetier.engine.disk.conftest import Open
from tests.support.l2disk import MIB, Disk
from tests.support.waiting import until


def value(seed: int, size: int = 100_000) -> bytes:
    return random.Random(seed).randbytes(size)


def block(namespace: str, number: int) -> bytes:
    return envelope.block_key(namespace, 0, number.to_bytes(4, "big"))


def test_value_round_trips(open_disk: Open) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    found = disk.tier.find(b"k", 0.0)
    assert isinstance(found, StoredValue)
    assert os.pread(found.fd, found.length, found.offset) == value(1)
    assert disk.read(found) == value(1)
    assert disk.tier.usage().entries == 1
    assert disk.held == 0
    assert disk.tier.find(b"other", 0.0) is None


def test_empty_value_is_a_value(open_disk: Open) -> None:
    disk = open_disk()
    disk.put(b"k", b"")
    assert disk.get(b"k") == b""


def test_value_being_written_is_read_from_memory(open_disk: Open) -> None:
    disk = open_disk()
    disk.offer(b"k", value(1))
    found = disk.tier.find(b"k", 0.0)  # the end of the write is not reported yet
    assert isinstance(found, Hold)
    disk.wait(lambda: disk.tier.usage().entries == 1)
    assert disk.held == 1  # by the reader alone now
    assert found.tobytes() == value(1)
    found.release()
    assert disk.held == 0
    assert disk.tier.usage().waiting_bytes == 0


def test_values_beyond_the_queue_are_declined_and_released(open_disk: Open) -> None:
    disk = open_disk(queue_bytes=250_000)
    for number in range(3):
        disk.offer(b"%d" % number, value(number))
    assert disk.held == 2
    assert disk.tier.counters.declined[DiskDecline.BEHIND] == 1
    assert disk.tier.spare_bytes == 50_000
    disk.settle()
    assert disk.tier.spare_bytes == 250_000
    disk.put(b"long", value(1, 250_001))
    assert disk.tier.counters.declined[DiskDecline.TOO_LARGE] == 1


@pytest.mark.parametrize("notified", [True, False])
def test_dropped_values_stay_dropped_after_a_restart(open_disk: Open, notified: bool) -> None:
    disk = open_disk()
    for number in range(8):
        disk.offer(b"%d" % number, value(number))
    if notified:
        disk.settle()
    assert disk.tier.drop(b"3")
    assert not disk.tier.drop(b"3")
    assert disk.get(b"3") is None
    disk.settle()
    assert disk.get(b"3") is None
    disk.close()
    again = open_disk()
    assert again.get(b"3") is None
    assert [again.get(b"%d" % n) for n in (0, 7)] == [value(0), value(7)]
    assert again.tier.usage().entries == 7


def test_expiry_survives_the_process(open_disk: Open) -> None:
    disk = open_disk()
    now = time.monotonic()
    disk.put(b"long", value(1), now + 1000)
    disk.put(b"ever", value(2))
    disk.put(b"short", value(3), now + 1000)
    disk.put(b"past", value(4), now - 1)
    assert disk.tier.counters.declined[DiskDecline.ENDED] == 1
    assert disk.tier.expire(b"short", 0.001, now)
    assert disk.tier.expire(b"ever", 500, now)
    assert disk.tier.expire(b"long", None, now)
    assert not disk.tier.expire(b"nothing", 5, now)
    until(lambda: disk.get(b"short") is None, what="the end")
    for one in (disk, None):
        if one is None:
            disk.close()
            one = open_disk()
        assert one.get(b"short") is None
        assert one.tier.peek(b"past", now) is None
        assert one.tier.ttl(b"long", now) == math.inf
        left = one.tier.ttl(b"ever", now)
        assert left is not None
        assert 490 < left <= 500


def test_tick_frees_expired_values(open_disk: Open) -> None:
    disk = open_disk()
    for number in range(5):
        disk.put(b"%d" % number, value(number), time.monotonic() + 0.05)

    def gone() -> bool:
        disk.tier.tick()
        return disk.tier.usage().entries == 0

    until(gone, what="the end")


def test_flush_affects_only_its_namespace(open_disk: Open) -> None:
    disk = open_disk()
    for number in range(10):
        disk.put(block("aa", number), value(number))
        disk.put(block("bb", number), value(number))
    disk.put(b"plain", value(99))
    disk.offer(block("aa", 99), value(99))
    assert disk.tier.clear("aa") == 11
    disk.settle()
    disk.close()
    again = open_disk()
    assert sorted(again.tier.walk()) == sorted([block("bb", n) for n in range(10)] + [b"plain"])


def test_flush_all(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    for number in range(30):
        disk.put(b"%d" % number, value(number))
    disk.offer(b"late", value(1))
    assert disk.tier.clear(None) == 31
    disk.put(b"after", value(2))
    disk.close()
    again = open_disk()
    assert list(again.tier.walk()) == [b"after"]
    assert len(list(folder.glob("*.seg"))) == 1


def sizes(folder: Path) -> Iterator[int]:
    for path in folder.glob("*.seg"):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            yield path.stat().st_size


def test_size_is_bounded_and_the_oldest_are_evicted(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    for number in range(300):  # 30 MB through 16 MiB
        disk.put(b"%d" % number, value(number))
        assert disk.tier.usage().used_bytes <= 16 * MIB
        if not number % 20:
            assert sum(sizes(folder)) <= 16 * MIB
    kept = sorted(int(key) for key in disk.tier.walk())
    assert kept == list(range(kept[0], 300))
    assert len(kept) > 100
    assert disk.tier.counters.evicted == kept[0]


def test_index_is_bounded(open_disk: Open) -> None:
    disk = open_disk(index=50_000)
    for number in range(1000):  # 256 to a segment
        disk.put(b"%d" % number, b"v" * 2000)
        assert disk.tier.usage().index_bytes <= 50_000 + 256 * 220
    assert disk.tier.counters.evicted > 0


def test_mostly_dead_segment_is_compacted(open_disk: Open) -> None:
    disk = open_disk()
    kept: dict[bytes, bytes] = {}
    for number in range(300):
        key = b"%d" % number
        disk.put(key, value(number))
        if number % 10:
            disk.tier.drop(key)
        else:
            kept[key] = value(number)
    counters = disk.tier.counters
    assert counters.compactions > 0
    assert counters.moved > 0
    assert counters.evicted == 0
    assert {key: disk.get(key) for key in kept} == kept
    disk.close()
    again = open_disk()
    assert {key: again.get(key) for key in again.tier.walk()} == kept


def test_reader_keeps_its_bytes_while_the_segment_is_removed(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    disk.put(b"read", value(0))
    found = disk.tier.find(b"read", 0.0)
    assert isinstance(found, StoredValue)
    first = min(folder.glob("*.seg"))
    for number in range(300):
        disk.put(b"%d" % number, value(number))
    assert disk.tier.find(b"read", 0.0) is None
    assert first.exists()  # not removed under its reader
    assert os.pread(found.fd, found.length, found.offset) == value(0)
    assert disk.read(found) == value(0)
    disk.wait(lambda: not first.exists())


def test_get_is_counted_and_peek_is_not(open_disk: Open) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    for _ in range(3):
        facts = disk.tier.peek(b"k", 0.0)
        assert facts is not None
        assert facts.on_disk
        assert facts.length == 100_000
    for worth in (False, True):
        found = disk.tier.find(b"k", 0.0)
        assert isinstance(found, StoredValue)
        assert found.deserves_memory is worth
        assert found.is_current
        found.release()
        found.release()
    disk.tier.drop(b"k")
    assert not found.is_current


def test_promoted_value_stays_on_disk_and_is_not_rewritten(open_disk: Open) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    disk.put(b"l", value(2))
    found = disk.tier.find(b"k", 0.0)
    assert isinstance(found, StoredValue)

    def commit() -> None:
        assert disk.tier.drop(b"k")  # what the store does for every key newly stored

    assert not found.bring_up(lambda: Refused(DeclineReason.QUOTA))
    assert disk.tier.usage().risen == 0
    assert found.bring_up(commit)
    found.release()
    usage = disk.tier.usage()
    assert (usage.risen, usage.entries) == (1, 2)
    disk.put(b"k", value(1))  # comes down again
    assert disk.held == 0
    assert disk.tier.counters.written == 2
    assert disk.tier.usage().risen == 0
    assert disk.get(b"k") == value(1)
    assert disk.tier.drop(b"k")
    disk.close()
    assert open_disk().get(b"k") is None


def test_rewritten_value_replaces_its_old_record(open_disk: Open) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    for number in range(80):
        disk.put(b"%d" % number, value(number))
    disk.put(b"k", value(1))  # there is room enough: it lies well where it lies
    assert disk.tier.counters.written == 81
    for number in range(40):
        disk.put(b"then %d" % number, value(number))
    disk.put(b"k", value(1))  # its segment is of those which go first
    assert disk.tier.counters.written == 122
    for number in range(70):
        disk.put(b"more %d" % number, value(number))
    assert disk.tier.counters.evicted > 0
    assert disk.get(b"k") == value(1)


def test_reads_beyond_the_queue_are_misses(
    open_disk: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cachetier.engine.disk.threads.MAX_QUEUED_READS", 2)
    disk = open_disk()
    disk.put(b"k", value(1))
    done: list[bool] = []
    for _ in range(2):
        found = disk.tier.find(b"k", 0.0)
        assert isinstance(found, StoredValue)
        found.fetch(done.append)
        found.release()
    assert disk.tier.find(b"k", 0.0) is None
    assert disk.tier.counters.reads[ReadOutcome.BEHIND] == 1
    disk.wait(lambda: len(done) == 2)
    assert disk.get(b"k") == value(1)


# -- the folder --------------------------------------------------------------------------------
def test_files_are_private(open_disk: Open, folder: Path) -> None:
    folder.mkdir(mode=0o755)
    disk = open_disk()
    disk.put(b"k", value(1))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_nodes_cannot_share_a_folder(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    with pytest.raises(FolderInUseError, match="in use by another"):
        Disk(folder)
    disk.close()
    open_disk()


def test_folder_with_foreign_files_is_rejected(folder: Path) -> None:
    folder.mkdir()
    (folder / "precious").write_text("mine")
    with pytest.raises(FolderInUseError, match="neither empty"):
        Disk(folder)
    assert [path.name for path in folder.iterdir()] == ["precious"]
