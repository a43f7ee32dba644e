"""Disk tier under load: writes, drops, compaction, eviction and slow readers."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from cachetier.engine.disk.counters import DiskDecline, ReadOutcome
from cachetier.engine.disk.health import DiskState
from cachetier.engine.disk.segment import SegmentFile
from cachetier.engine.disk.values import StoredValue
from tests.cachetier.engine.disk.conftest import Open
from tests.support.l2disk import MIB, Disk

AT_ONCE = 8


def value(number: int) -> bytes:
    return b"%07d;" % number * (random.Random(number).randrange(1, 40_000) // 8)


class Readers:
    """Some reads under way at a time; each value is compared when it comes."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.under_way = 0
        self.compared = 0

    def read(self, number: int) -> None:
        if self.under_way >= AT_ONCE:
            self.disk.wait(lambda: self.under_way < AT_ONCE)
        found = self.disk.tier.find(b"%d" % number, 0.0)
        if not isinstance(found, StoredValue):
            if found is not None:
                found.release()
            return
        memory = bytearray(found.length)
        self.under_way += 1

        def done(is_good: bool) -> None:
            self.under_way -= 1
            assert is_good
            assert memory == value(number)
            self.compared += 1
            found.release()

        found.fetch(done, [memoryview(memory)])


def test_compaction_under_load(open_disk: Open, caplog: pytest.LogCaptureFixture) -> None:
    disk, chance = open_disk(8 * MIB), random.Random(1)
    readers, kept = Readers(disk), [0]
    for number in range(3000):
        disk.offer(b"%d" % number, value(number))
        disk.wait(lambda: disk.tier.usage().waiting_bytes < MIB)  # as quick as it is
        past = number - 100
        if past % 6:
            disk.tier.drop(b"%d" % past)
        else:
            kept.append(past)
        readers.read(chance.choice(kept[-60:]))
    disk.settle()
    disk.wait(lambda: not readers.under_way)
    counters = disk.tier.counters
    assert counters.compactions > 2
    assert counters.moved > 20
    assert readers.compared > 500
    assert counters.reads[ReadOutcome.CORRUPT] == counters.reads[ReadOutcome.ERROR] == 0
    assert counters.declined[DiskDecline.DOWN] == counters.declined[DiskDecline.BEHIND] == 0
    assert disk.tier.usage().used_bytes <= 8 * MIB
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


def test_hanging_disk_blocks_only_its_readers(
    open_disk: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = open_disk()
    for number in range(4):
        disk.put(b"%d" % number, value(number))
    answers, done = threading.Event(), list[bool]()
    real = SegmentFile.read

    def read(file: SegmentFile, *args: Any) -> None:
        assert answers.wait(60)
        real(file, *args)

    monkeypatch.setattr(SegmentFile, "read", read)
    found = disk.tier.find(b"0", 0.0)
    assert isinstance(found, StoredValue)
    found.fetch(done.append)
    assert disk.tier.drop(b"1")
    disk.put(b"new", value(9))
    assert disk.tier.peek(b"2", 0.0) is not None
    assert not done
    answers.set()
    disk.wait(lambda: done == [True])
    found.release()
    assert disk.get(b"new") == value(9)


def test_writer_error_disables_only_the_disk(
    open_disk: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must neither hold memory nor go on unseen."""
    disk = open_disk()
    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "append", lambda *_: 1 // 0)
        disk.put(b"k", value(1))
    assert disk.held == 0
    assert disk.tier.usage().state is DiskState.FAILING
    disk.tier.health.retry_at = 0.0
    disk.tier.tick()
    disk.wait(lambda: disk.tier.health.is_ok)
    disk.put(b"k", value(1))
    assert disk.get(b"k") == value(1)
