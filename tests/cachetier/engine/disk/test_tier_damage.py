"""Damaged disk files: reads return the written bytes or nothing."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from cachetier.engine.disk import format as layout
from cachetier.engine.disk.counters import ReadOutcome
from cachetier.engine.disk.values import StoredValue
from tests.cachetier.engine.disk.conftest import Open
from tests.support.l2disk import MIB, Disk, as_if_killed

CAPACITY = 2 * MIB
COUNT = 30


def value(number: int) -> bytes:
    return random.Random(number).randbytes(30_000 + number)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty values in five segments, every third one dropped."""
    folder = tmp_path_factory.mktemp("written") / "disk"
    disk = Disk(folder, CAPACITY)
    for number in range(COUNT):
        disk.put(b"%d" % number, value(number))
    for number in range(0, COUNT, 3):
        disk.tier.drop(b"%d" % number)
    disk.close()
    return folder


def check(disk: Disk) -> int:
    """How many there are; all of them right."""
    count = 0
    for number in range(COUNT):
        found = disk.get(b"%d" % number)
        assert found in (None, value(number))
        assert found is None or number % 3
        count += found is not None
    return count


def flip(path: Path, place: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))


def test_intact_folder_is_complete(written: Path, folder: Path) -> None:
    shutil.copytree(written, folder)
    disk = Disk(folder, CAPACITY)
    assert check(disk) == 20
    disk.close()


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bits(written: Path, folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    shutil.copytree(written, folder)
    path = chance.choice(sorted(folder.glob("*.seg")))
    size = path.stat().st_size
    table = layout.HEAD_BYTES
    spans = [(0, 600), (table, table + 20 * layout.SLOT_BYTES), (size - 900, size), (0, size)]
    for _ in range(chance.choice((1, 3, 200))):
        flip(path, chance.randrange(*chance.choice(spans)), chance.randrange(8))
    disk = Disk(folder, CAPACITY)
    count = check(disk)
    assert count >= 12  # the others are untouched
    assert check(disk) == count
    disk.close()


@pytest.mark.parametrize("length", [0, 100, 4096, 9000, 100_000, 200_000])
def test_truncated_file(written: Path, folder: Path, length: int) -> None:
    shutil.copytree(written, folder)
    first = min(folder.glob("*.seg"))
    os.truncate(first, length)
    disk = Disk(folder, CAPACITY)
    assert check(disk) >= 15
    disk.put(b"new", b"value")
    disk.close()
    again = Disk(folder, CAPACITY)
    assert again.get(b"new") == b"value"
    again.close()


def test_swapped_segment_file(written: Path, folder: Path) -> None:
    shutil.copytree(written, folder)
    first, second = sorted(folder.glob("*.seg"))[:2]
    shutil.copy(first, second)
    disk = Disk(folder, CAPACITY)
    assert check(disk) >= 12
    assert not second.exists()
    disk.close()


def test_corruption_while_open_is_detected_on_read(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    found = disk.tier.find(b"k", 0.0)
    assert isinstance(found, StoredValue)
    flip(next(folder.glob("*.seg")), found.offset + 20_000, 3)
    done: list[bool] = []
    found.fetch(done.append)  # as before a sendfile
    disk.wait(lambda: bool(done))
    found.release()
    assert done == [False]
    assert disk.tier.counters.reads[ReadOutcome.CORRUPT] == 1
    assert disk.tier.peek(b"k", 0.0) is None  # gone for good
    disk.close()
    assert open_disk().get(b"k") is None


def test_corrupt_record_is_not_compacted(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    for number in range(100):
        disk.put(b"%d" % number, value(number))
        if number > 2:
            disk.tier.drop(b"%d" % number)
    place = disk.tier.find(b"1", 0.0)
    assert isinstance(place, StoredValue)
    place.release()
    flip(min(folder.glob("*.seg")), place.offset + 5, 1)
    for number in range(1000, 1500):
        disk.put(b"%d" % number, value(number))
    assert disk.tier.counters.moved > 0
    assert disk.tier.peek(b"1", 0.0) is None
    assert disk.tier.counters.reads[ReadOutcome.CORRUPT] == 1
    assert disk.get(b"2") in (None, value(2))


@pytest.mark.parametrize("state", ["", "clean\0", "another boot", None])
def test_folder_of_a_crashed_machine_is_cleared(
    written: Path, folder: Path, state: str | None
) -> None:
    """Wipes may be missing from it: what was dropped could come back."""
    shutil.copytree(written, folder)
    if state is None:
        (folder / "emberline-l2.state").unlink()
    else:
        (folder / "emberline-l2.state").write_text(state)
    disk = Disk(folder, CAPACITY)
    assert check(disk) == 0
    assert not list(folder.glob("*.seg"))
    disk.close()


def test_cleanly_closed_folder_is_used_after_a_reboot(
    written: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("one")
    monkeypatch.setattr("cachetier.engine.disk.folder._BOOT_ID", boot)
    shutil.copytree(written, folder)
    disk = Disk(folder, CAPACITY)  # was left in order
    assert check(disk) == 20
    copy = tmp_path / "crashed"
    as_if_killed(folder, copy)
    disk.close()
    boot.write_text("two")
    crashed, closed = Disk(copy, CAPACITY), Disk(folder, CAPACITY)
    assert (check(crashed), check(closed)) == (0, 20)
    crashed.close()
    closed.close()
