"""Interrupted compaction: operations between two records apply to both segments."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cachetier.engine.disk import format as layout
from cachetier.engine.disk.segment import SegmentFile
from tests.cachetier.engine.disk.conftest import Open
from tests.support.l2disk import MIB, Disk, as_if_killed


def value(number: int) -> bytes:
    return random.Random(number).randbytes(100_000)


class Gate:
    """Writer that passes the first move, and the others on release."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.moves = 0
        real = SegmentFile.copy

        def copy(file: SegmentFile, *args: Any) -> Any:
            self.moves += 1
            if self.moves > 1:
                assert self.opened.wait(60)
            return real(file, *args)

        monkeypatch.setattr(SegmentFile, "copy", copy)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    one = Gate(monkeypatch)
    yield one
    one.opened.set()


def fill_until_compacted(disk: Disk) -> None:
    counters = disk.tier.counters
    number = 100
    while not counters.compactions:
        disk.offer(b"%d" % number, value(number))
        disk.wait(lambda: not disk.held or counters.compactions > 0)
        number += 1


def halfway(disk: Disk) -> None:
    """One record of the oldest segment is moved, the next is not."""
    for number in range(20):
        disk.put(b"%d" % number, value(number))
        if number > 4:
            disk.tier.drop(b"%d" % number)
    fill_until_compacted(disk)
    disk.wait(lambda: disk.tier.counters.moved == 1, what="the first move")


def crashed(folder: Path) -> Disk:
    copy = folder.with_name("crashed")
    as_if_killed(folder, copy)
    return Disk(copy)


def test_value_dropped_after_its_move_is_in_neither_segment(
    open_disk: Open, folder: Path, gate: Gate
) -> None:
    disk = open_disk()
    halfway(disk)
    assert disk.tier.drop(b"0")  # moved
    assert disk.tier.drop(b"1")  # being moved
    again = crashed(folder)
    assert again.get(b"0") is None
    assert again.get(b"1") is None
    assert again.get(b"2") == value(2)
    again.close()
    gate.opened.set()
    disk.settle()
    assert disk.get(b"1") is None
    assert disk.get(b"4") == value(4)


def test_changed_expiry_applies_to_any_location(open_disk: Open, folder: Path, gate: Gate) -> None:
    disk = open_disk()
    halfway(disk)
    for key in (b"0", b"1"):
        assert disk.tier.expire(key, 500.0, 0.0)
    again = crashed(folder)
    for key in (b"0", b"1"):
        left = again.tier.ttl(key, 0.0)
        assert left is not None
        assert left <= 500
    again.close()
    gate.opened.set()
    disk.settle()
    disk.close()
    again = open_disk()
    left = again.tier.ttl(b"1", 0.0)
    assert left is not None
    assert left <= 500


def test_value_found_twice_is_dropped_from_both_segments(open_disk: Open, folder: Path) -> None:
    """Killed after a move's end was written and before its beginning was wiped."""
    disk = open_disk()
    disk.put(b"k", value(1))
    disk.close()
    file = SegmentFile.create(folder, 2, MIB)
    crc = layout.value_crc([value(1)])
    file.commit(0, layout.NO_EXPIRY, file.append(b"k", [value(1)], len(value(1)), crc).crc)
    file.close()
    again = open_disk()
    assert again.get(b"k") == value(1)
    assert again.tier.usage().entries == 1
    assert again.tier.drop(b"k")
    last = crashed(folder)
    assert last.get(b"k") is None
    last.close()


def test_empty_segment_is_skipped(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    for number in range(5):
        disk.put(b"%d" % number, value(number))
        disk.tier.drop(b"%d" % number)
    again = crashed(folder)
    assert again.tier.usage().segments == 1
    for number in range(300):
        again.put(b"%d" % number, value(number))
    assert again.tier.counters.written == 300
    again.close()


def test_flush_during_a_move(open_disk: Open, folder: Path, gate: Gate) -> None:
    disk = open_disk()
    halfway(disk)
    disk.tier.clear(None)
    again = crashed(folder)
    assert list(again.tier.walk()) == []
    again.close()
    gate.opened.set()
    disk.put(b"after", value(1))
    assert list(disk.tier.walk()) == [b"after"]
    disk.close()
    assert list(open_disk().tier.walk()) == [b"after"]


def test_expiry_changed_during_a_move(open_disk: Open, gate: Gate) -> None:
    """The move is done on disk; the loop has no notice of it."""
    gate.opened.set()
    disk = open_disk()
    for number in range(20):
        disk.put(b"%d" % number, value(number))
        if number:
            disk.tier.drop(b"%d" % number)
    fill_until_compacted(disk)
    move = disk.tier._under_way.get(b"0")
    if move is not None:  # else its end was reported together with the beginning
        while move.place is None:
            pass
    assert disk.tier.expire(b"0", 500.0, 0.0)
    disk.settle()
    disk.close()
    left = open_disk().tier.ttl(b"0", 0.0)
    assert left is not None
    assert left <= 500
