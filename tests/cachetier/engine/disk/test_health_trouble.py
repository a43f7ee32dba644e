"""Disk faults (full, failing, read-only, removed): fallback to memory, reporting and retries."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cachetier.engine.disk import tier as tier_module
from cachetier.engine.disk.counters import DiskDecline, ReadOutcome
from cachetier.engine.disk.health import DiskHealth, DiskState
from cachetier.engine.disk.segment import segment_path
from cachetier.engine.disk.values import StoredValue
from tests.cachetier.engine.disk.conftest import Open
from tests.support.l2disk import MIB, Disk


def value(number: int) -> bytes:
    return random.Random(number).randbytes(100_000)


class Faults:
    """File calls which fail with an errno while it is set; `after` lets some through first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing: dict[str, int] = {}
        self.after = 0
        for name in ("pwritev", "preadv", "fdatasync", "unlink", "ftruncate", "open"):
            monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if name in self.failing and (name != "open" or str(args[0]).endswith(".seg")):
                self.after -= 1
                if self.after < 0:
                    number = self.failing[name]
                    raise OSError(number, os.strerror(number))
            return real(*args, **options)

        return call


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    one = Faults(monkeypatch)
    yield one
    one.failing.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    one = SimpleNamespace(now=1000.0)
    one.monotonic = lambda: one.now
    one.time_ns = lambda: int((one.now + 1e9) * 1e9)
    monkeypatch.setattr(tier_module, "time", one)
    return one


def recover(disk: Disk, clock: SimpleNamespace) -> None:
    """Until a retry works."""
    for _ in range(10):
        clock.now += 61
        disk.tier.tick()
        disk.wait(lambda: disk.tier.health.is_ok or disk.tier.health.retry_at < 1e12)
        if disk.tier.health.is_ok:
            return
    raise AssertionError(disk.tier.health.reason)


def state(disk: Disk) -> DiskState:
    return disk.tier.usage().state


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        (errno.ENOSPC, DiskState.FULL),
        (errno.EDQUOT, DiskState.FULL),
        (errno.EIO, DiskState.FAILING),
        (errno.EROFS, DiskState.READ_ONLY),
        (errno.ETIMEDOUT, DiskState.FAILING),
    ],
)
def test_failed_write(
    open_disk: Open,
    faults: Faults,
    clock: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    call: str,
    number: int,
    wanted: DiskState,
) -> None:
    disk = open_disk()
    disk.put(b"before", value(0))
    faults.failing[call] = number
    faults.after = 1  # within a record, after its header
    puts = 0
    while disk.tier.health.is_ok:
        puts += 1
        assert puts < 200, "nobody noticed"
        disk.put(b"%d" % puts, value(puts))
    for key in range(30):
        disk.put(b"late %d" % key, value(key))
    assert state(disk) is wanted
    assert errno.errorcode[number] in disk.tier.usage().reason
    assert disk.tier.counters.declined[DiskDecline.DOWN] >= 20
    assert disk.tier.spare_bytes == 0  # memory is all for values now
    if wanted is not DiskState.FULL and call == "pwritev":  # else it may have had to go by now
        assert disk.get(b"before") == value(0)  # what is there is still read
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    clock.now += 61
    disk.tier.tick()
    disk.tier.tick()
    disk.settle()
    faults.failing.clear()
    recover(disk, clock)
    disk.put(b"after", value(1))
    assert disk.get(b"after") == value(1)
    disk.close()
    again = open_disk()
    assert again.get(b"before") in (None, value(0))
    # A wipe may be among what could not be synced: then nothing is believed.
    assert again.get(b"after") == (None if call == "fdatasync" else value(1))


def test_retry_delays_grow() -> None:
    health, now, waits = DiskHealth("x"), 0.0, []
    health.worked(now)
    for _ in range(9):
        health.failed(OSError(errno.EIO, ""), now, "writing")
        waits.append(health.retry_at - now)
        assert not health.may_try(health.retry_at - 0.1)
        now = health.retry_at
        assert health.may_try(now)
        health.worked(now)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    health.failed(OSError(errno.EIO, ""), now + 1000, "writing")
    assert health.retry_at == now + 1001


def test_unwipeable_record_is_dropped_with_its_segment(
    open_disk: Open, faults: Faults, clock: SimpleNamespace
) -> None:
    disk = open_disk()
    for key in range(40):
        disk.put(b"%d" % key, value(key))
    faults.failing["pwritev"] = errno.EIO
    assert disk.tier.drop(b"3")
    assert disk.tier.find(b"3", 0.0) is None
    assert disk.tier.find(b"4", 0.0) is None  # lay beside it
    assert disk.get(b"30") == value(30)
    assert state(disk) is DiskState.FAILING
    faults.failing.clear()
    recover(disk, clock)
    disk.close()
    again = open_disk()
    assert again.get(b"3") is None
    assert again.get(b"30") == value(30)


def test_unwritable_expiry_takes_effect_at_once(open_disk: Open, faults: Faults) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    faults.failing["pwritev"] = errno.EIO
    assert disk.tier.expire(b"k", 5.0, 0.0)
    faults.failing.clear()
    disk.close()
    assert open_disk().get(b"k") is None


def test_failed_disk_is_cleared_before_reuse(
    open_disk: Open, folder: Path, faults: Faults, clock: SimpleNamespace
) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    faults.failing |= {"pwritev": errno.EROFS, "unlink": errno.EROFS, "open": errno.EROFS}
    assert disk.tier.drop(b"k")
    assert disk.tier.find(b"k", 0.0) is None
    for _ in range(3):
        clock.now += 61
        disk.tier.tick()
        disk.wait(lambda: disk.tier.health.retry_at < 1e12)
    assert state(disk) is DiskState.READ_ONLY
    assert segment_path(folder, 1).exists()
    faults.failing.clear()
    recover(disk, clock)
    assert not segment_path(folder, 1).exists()
    disk.close()
    assert open_disk().get(b"k") is None


def test_unreadable_value_is_a_miss(open_disk: Open, faults: Faults) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    faults.failing["preadv"] = errno.EIO
    assert disk.get(b"k") is None
    faults.failing.clear()
    assert disk.get(b"k") is None  # dropped: it would cost every asker the wait
    assert disk.tier.counters.reads[ReadOutcome.ERROR] == 1
    assert state(disk) is DiskState.OK


def test_failed_folder_open_is_retried(
    open_disk: Open, folder: Path, clock: SimpleNamespace
) -> None:
    folder.parent.joinpath("disk").write_text("a file")
    disk = open_disk()
    assert state(disk) is DiskState.GONE
    disk.put(b"k", value(1))
    assert disk.tier.counters.declined[DiskDecline.DOWN] == 1
    folder.unlink()
    recover(disk, clock)
    disk.put(b"k", value(1))
    assert disk.get(b"k") == value(1)


# -- a folder that goes ------------------------------------------------------------------------
def test_replaced_folder_is_not_used(open_disk: Open, folder: Path, clock: SimpleNamespace) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    folder.rename(folder.with_name("moved"))
    other = Disk(folder)
    other.put(b"theirs", value(2))
    disk.tier.tick()
    disk.tier.tick()
    disk.wait(lambda: state(disk) is DiskState.GONE)
    assert disk.tier.find(b"k", 0.0) is None
    clock.now += 61
    disk.tier.tick()
    disk.wait(lambda: "EBUSY" in disk.tier.health.reason)
    assert other.get(b"theirs") == value(2)
    assert segment_path(folder, 1).exists()  # of the same name as ours
    other.close()
    recover(disk, clock)
    assert disk.tier.usage().entries == 0  # what was dropped meanwhile is not known
    disk.put(b"k", value(3))
    disk.close()
    again = open_disk()
    assert list(again.tier.walk()) == [b"k"]


# -- a disk that is full -----------------------------------------------------------------------
@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_disk_smaller_than_configured(small: Path, clock: SimpleNamespace) -> None:
    disk = Disk(small / "disk", 64 * MIB)
    fulls = 0
    for key in range(1000):
        disk.put(b"%d" % key, value(key))
        if state(disk) is DiskState.FULL:
            fulls += 1
            recover(disk, clock)
    usage = disk.tier.usage()
    assert 0 < fulls < 6  # it learns what there is
    assert usage.used_bytes <= usage.capacity_bytes <= 40 * MIB
    found = [key for key in range(1000) if disk.get(b"%d" % key) == value(key)]
    assert len(found) > 80
    assert found[-1] == 999
    disk.close()
    again = Disk(small / "disk", 64 * MIB)
    assert again.tier.usage().entries >= 80
    again.close()


def test_disk_filled_by_other_programs(small: Path, clock: SimpleNamespace) -> None:
    disk = Disk(small / "disk", 32 * MIB)
    for key in range(250):
        disk.put(b"%d" % key, value(key))
    (small / "others").write_bytes(bytes(15 * MIB))
    for key in range(250, 450):
        disk.put(b"%d" % key, value(key))
        if not disk.tier.health.is_ok:
            recover(disk, clock)
    assert disk.tier.usage().capacity_bytes < 26 * MIB
    (small / "others").unlink()
    for key in range(450, 1000):
        disk.put(b"%d" % key, value(key))
    assert disk.tier.usage().capacity_bytes > 27 * MIB  # and takes it back
    disk.close()


def test_value_being_read_stays_readable_when_the_disk_fails(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    disk.put(b"k", value(1))
    found = disk.tier.find(b"k", 0.0)
    assert isinstance(found, StoredValue)
    shutil.rmtree(folder)
    disk.tier.tick()
    disk.tier.tick()
    disk.wait(lambda: state(disk) is DiskState.GONE)
    assert disk.read(found) == value(1)
