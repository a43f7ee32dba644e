"""Arena: one paged mapping for long values, private or shared with readers.

The mapping is made once, for the maximum size of the node; the kernel allocates pages on first
write. A value takes as few page runs as possible (pages.py), so the only fragmentation is each
value's last page. Pages are warmed in batches, on huge pages where available, since a fault per
page costs more than receiving the data. In shared memory, warming turns a lack of system memory
into an error (the arena shrinks) instead of a later SIGBUS.

A shared arena is a file in /dev/shm that this process keeps locked. The lock ends with the process,
so an unlocked file was left behind and is removed by the next node. The first page is a header
(cachetier.wire.arena).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cachetier.engine.memory.pages import Pages, Run
from cachetier.wire import arena as wire

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 16 * 1024
# Warmed at a time: one huge page.
_STEP: Final = 2 * 1024 * 1024 // PAGE_BYTES
_MADV_POPULATE_WRITE: Final = 23  # Linux 5.14; missing in the mmap module
_MAP_NORESERVE: Final = 0x4000

# (offset in the arena, length)
Extent = tuple[int, int]


class ArenaError(RuntimeError):
    """Shared memory error; the message states reason and fix."""


class NoRoomError(ArenaError):
    """Not enough shared memory on this machine; private memory works."""


class Arena:
    """Arena; `capacity_bytes` may change up to `limit_bytes`. One thread only."""

    def __init__(self, capacity_bytes: int, *, limit_bytes: int = 0, shm: str = "") -> None:
        self.shm = shm
        self.token = secrets.token_bytes(16)
        self._fd = -1
        self._first = 1 if shm else 0  # reserved for the header
        count = capacity_bytes // PAGE_BYTES
        self._limit = self._first + max(count, limit_bytes // PAGE_BYTES)
        self._map = self._map_shared(count) if shm else self._map_private(count)
        self._limit = len(self._map) // PAGE_BYTES
        self._view = memoryview(self._map)
        self._read_view = self._view.toreadonly()
        self._pages = Pages(self._first, count)
        self._count = count
        self._warm = bytearray(self._limit)  # per page: 1 once it has memory
        self._mark = self._first  # pages from here on were never warmed

    def _map_private(self, count: int) -> mmap.mmap:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        try:
            private = mmap.mmap(-1, self._limit * PAGE_BYTES, flags=flags | _MAP_NORESERVE)
        except OSError:  # address space is limited: no growth possible
            private = mmap.mmap(-1, max(count, 1) * PAGE_BYTES, flags=flags)
        for advice in ("MADV_HUGEPAGE", "MADV_DONTDUMP"):
            _advise(private, getattr(mmap, advice, None))
        return private

    def _map_shared(self, count: int) -> mmap.mmap:
        path = Path(wire.FOLDER, self.shm)
        remove_leftovers(path)
        free = os.statvfs(wire.FOLDER)
        if count * PAGE_BYTES > free.f_bavail * free.f_frsize:
            raise NoRoomError(
                f"{wire.FOLDER} has {free.f_bavail * free.f_frsize} bytes free, "
                f"this node needs {count * PAGE_BYTES}: enlarge it (in Kubernetes "
                "an emptyDir of medium Memory with a larger sizeLimit) or reduce "
                "--memory"
            )
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = self._limit * PAGE_BYTES
        os.ftruncate(self._fd, size)
        shared = mmap.mmap(self._fd, size)
        head = wire.pack(wire.Header(PAGE_BYTES, os.getpid(), self.token, size))
        os.pwrite(self._fd, head, 0)
        return shared

    def close(self) -> None:
        """Remove the file; memory is freed with its last mapping."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                Path(wire.FOLDER, self.shm).unlink()
            os.close(self._fd)
            self._fd = -1

    @property
    def capacity_bytes(self) -> int:
        return self._count * PAGE_BYTES

    @property
    def limit_bytes(self) -> int:
        return (self._limit - self._first) * PAGE_BYTES

    @staticmethod
    def cost(length: int) -> int:
        return -(-length // PAGE_BYTES) * PAGE_BYTES

    def take(self, length: int) -> list[Extent] | None:
        """Allocate `length` bytes; None without room or system memory (the arena then shrinks)."""
        runs = self._pages.take(-(-length // PAGE_BYTES))
        if runs is None:
            return None
        for start, count in runs:
            if self._warm.find(0, start, start + count) >= 0 and not self._warm_up(start, count):
                self._pages.give(runs)
                self._give_up_cold()
                return None
        return _extents(runs, length)

    def give(self, extents: Sequence[Extent]) -> None:
        self._pages.give([(start // PAGE_BYTES, -(-size // PAGE_BYTES)) for start, size in extents])

    def writable(self, extents: Sequence[Extent]) -> list[memoryview]:
        return [self._view[start : start + size] for start, size in extents]

    def readable(self, extents: Sequence[Extent]) -> list[memoryview]:
        return [self._read_view[start : start + size] for start, size in extents]

    def resize(self, capacity_bytes: int) -> None:
        """Resize; shrinks by the pages free now, so call again when more are freed."""
        pages = min(capacity_bytes // PAGE_BYTES, self._limit - self._first)
        if pages > self._count:
            more = pages - self._count
            more -= self._pages.restore(more)
            self._pages.extend(min(more, self._limit - self._pages.top))
        elif pages < self._count:
            self._cool(self._pages.retire(self._count - pages))
        self._recount()

    def _cool(self, runs: Sequence[Run]) -> None:
        advice = getattr(mmap, "MADV_REMOVE" if self.shm else "MADV_DONTNEED", None)
        for start, count in runs:
            _advise(self._map, advice, start, count)
            self._warm[start : start + count] = bytes(count)

    def _warm_up(self, start: int, count: int) -> bool:
        """Warm these pages, and more if all following are new; return whether they have memory."""
        stop = start + count
        if stop > self._mark:
            ahead = -(-stop // _STEP) * _STEP
            stop = max(stop, min(ahead, self._pages.top))
        begin = self._warm.find(0, start, stop)
        if not self._populate(begin, stop - begin):
            return False
        self._warm[begin:stop] = b"\x01" * (stop - begin)
        self._mark = max(self._mark, stop)
        return True

    def _populate(self, start: int, count: int) -> bool:
        if self.shm:
            try:
                os.posix_fallocate(self._fd, start * PAGE_BYTES, count * PAGE_BYTES)
            except OSError as exc:
                log.error("Out of shared memory: %s", exc.strerror)
                return False
        # Unsupported by older kernels: pages are then faulted in one by one.
        _advise(self._map, _MADV_POPULATE_WRITE, start, count)
        return True

    def _give_up_cold(self) -> None:
        """Remove never used pages, for which the system has no memory."""
        for run in self._pages.runs():
            cold = list(self._cold_parts(*run))
            if cold:
                self._pages.withdraw(run, cold)
        self._recount()

    def _cold_parts(self, start: int, count: int) -> Iterator[Run]:
        stop = start + count
        while (first := self._warm.find(0, start, stop)) >= 0:
            end = self._warm.find(1, first, stop)
            start = end if end >= 0 else stop
            yield first, start - first

    def _recount(self) -> None:
        self._count = self._pages.top - self._first - self._pages.retired


def remove_leftovers(wanted: Path) -> None:
    """Remove arenas of dead engines; raise ArenaError if `wanted` is in use."""
    for path in Path(wire.FOLDER).iterdir():
        if path == wanted or path.is_file():
            _remove_leftover(path, wanted=path == wanted)


def _remove_leftover(path: Path, *, wanted: bool) -> None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError as exc:
        if wanted:
            raise ArenaError(f"{path} cannot be replaced: {exc.strerror}") from None
        return  # other user
    try:
        if wire.unpack(os.pread(fd, wire.HEADER_BYTES, 0)) is None:
            if wanted:
                raise ArenaError(f"{path} exists and is not an arena: choose another --shm")
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        log.info("Removed %s, left behind by a dead node", path)
    except BlockingIOError:
        if wanted:
            raise ArenaError(f"{path} belongs to a running node: choose another --shm") from None
    finally:
        os.close(fd)


def _extents(runs: Sequence[Run], length: int) -> list[Extent]:
    extents: list[Extent] = []
    for start, count in runs:
        size = min(length, count * PAGE_BYTES)
        extents.append((start * PAGE_BYTES, size))
        length -= size
    return extents


def _advise(target: mmap.mmap, advice: int | None, start: int = 0, count: int = -1) -> None:
    """Apply madvise; a kernel that rejects it is only slower."""
    if advice is None:
        return
    with contextlib.suppress(OSError):
        if count < 0:
            target.madvise(advice)
        else:
            target.madvise(advice, start * PAGE_BYTES, count * PAGE_BYTES)
