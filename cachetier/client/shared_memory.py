"""Reads of values from the shared memory of a node on the same machine.

    LEASE ttl_ms key...  ->  lease, arena name in /dev/shm, its token, per key null or
                             [length, [offset, length], ...]
    UNLEASE lease

The leased ranges are not overwritten. If the lease expired (this process was suspended), the
checksum of the copy detects it. Arenas of another machine, another container's /dev/shm or an
earlier node are detected by the token in the first page. On any failure the reason is counted and
values are read over the socket.

The arena is read with preadv, not mapped: access to a mapping whose pages were released or cannot
be allocated kills the process, while a read returns zeros or an error. preadv also releases the
GIL.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cachetier.client.connection import Connection, ReplyError, command, drop_prefix
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.replies import INTEGRITY_OUTCOMES
from cachetier.wire import arena, envelope

# Retry interval after shared memory was unavailable: the node may have restarted.
PAUSE_S = 30.0
_LEASE_S = 10.0
# Shorter values are not in the arena.
MIN_BYTES = 16 * 1024


class SharedResult(StrEnum):
    """Result of a shared memory read, a counter label; all but OK are read over the socket."""

    OK = "ok"
    UNKNOWN_COMMAND = "unknown_command"  # Redis, Valkey or an older node
    NOT_SHARED = "off"  # the node does not share its arena
    OTHER_MACHINE = "other_machine"  # no such arena on this machine
    STALE_ARENA = "stale_arena"  # arena of another node
    NO_ACCESS = "no_access"
    BAD_REPLY = "bad_answer"
    NOT_LEASED = "not_leased"  # missing, on disk, or too short for the arena


Item = tuple[bytes, memoryview]


class SharedMemoryUnavailable(Exception):
    """Values must be read over the socket; see `reason`."""

    def __init__(self, reason: SharedResult) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease reply; `places` has per key, in order, None or its (offset, length) ranges."""

    number: int
    name: str
    token: bytes
    places: tuple[tuple[tuple[int, int], ...] | None, ...]


class SharedMemory:
    """Shared memory of one node. Thread-safe; `now` is the caller's monotonic clock."""

    def __init__(self, folder: str = arena.FOLDER) -> None:
        self._folder = Path(folder)
        self._lock = threading.Lock()
        self._open: tuple[bytes, int] | None = None  # token and descriptor of the arena
        self._rest_until = 0.0
        self.why = ""

    def is_resting(self, now: float) -> bool:
        return now < self._rest_until

    def rest(self, reason: str, now: float) -> None:
        self.why = reason
        self._rest_until = now + PAUSE_S

    def load(
        self, connection: Connection, items: Sequence[Item], deadline: float
    ) -> list[KeyOutcome | None]:
        """Return outcomes, None for keys to read over the socket; raise if all must be."""
        milliseconds = b"%d" % (_LEASE_S * 1000)
        connection.send([command(b"LEASE", milliseconds, *(key for key, _ in items))], deadline)
        try:
            lease = parse_lease(connection.read_value(deadline), len(items))
        except ReplyError as exc:
            is_unknown = "unknown command" in str(exc).lower()
            why = SharedResult.UNKNOWN_COMMAND if is_unknown else SharedResult.NOT_SHARED
            raise SharedMemoryUnavailable(why) from None
        try:
            fd = self._open_arena(lease)
            try:
                return [
                    None if runs is None else _read_value(fd, runs, key, target)
                    for runs, (key, target) in zip(lease.places, items, strict=True)
                ]
            finally:
                os.close(fd)
        finally:
            connection.send([command(b"UNLEASE", b"%d" % lease.number)], deadline)
            with contextlib.suppress(ReplyError):  # lease expired
                connection.read_value(deadline)

    def close(self) -> None:
        with self._lock:
            self._close_arena()

    def _close_arena(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            os.close(opened[1])

    def _open_arena(self, lease: Lease) -> int:
        """Return a new descriptor of the lease's arena, which is kept open while its node lives."""
        with self._lock:
            if self._open is None or self._open[0] != lease.token:
                self._close_arena()
                self._open = lease.token, _open_file(self._folder, lease)
            return os.dup(self._open[1])


def _open_file(folder: Path, lease: Lease) -> int:
    if "/" in lease.name or lease.name.startswith(".") or not lease.name:
        raise SharedMemoryUnavailable(SharedResult.BAD_REPLY)
    try:
        fd = os.open(folder / lease.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise SharedMemoryUnavailable(SharedResult.OTHER_MACHINE) from None
    except OSError:
        raise SharedMemoryUnavailable(SharedResult.NO_ACCESS) from None
    header = arena.unpack(os.pread(fd, arena.HEADER_BYTES, 0))
    if header is None or header.token != lease.token:
        os.close(fd)
        raise SharedMemoryUnavailable(SharedResult.STALE_ARENA)
    return fd


def _read_value(
    fd: int, runs: Sequence[tuple[int, int]], key: bytes, target: memoryview
) -> KeyOutcome | None:
    """Fill `target` with the value and return its outcome."""
    header = bytearray(envelope.HEADER_BYTES)
    if sum(length for _, length in runs) != len(header) + target.nbytes:
        return KeyOutcome.CORRUPT
    waiting = [memoryview(header), target]
    for offset, length in runs:
        while length:
            prefix = _take_prefix(waiting, length)
            try:
                count = os.preadv(fd, prefix, offset)
            except OSError:
                return None
            if not count:
                return None  # beyond the end of the arena
            offset, length = offset + count, length - count
            drop_prefix(waiting, count)
    if envelope.expected_length(header, key) != target.nbytes:
        return KeyOutcome.CORRUPT
    return INTEGRITY_OUTCOMES[envelope.is_intact(header, target)]


def _take_prefix(views: Sequence[memoryview], count: int) -> list[memoryview]:
    """Return views on the first `count` bytes."""
    prefix = []
    for view in views:
        part = view[:count]
        prefix.append(part)
        count -= part.nbytes
        if not count:
            break
    return prefix


def parse_lease(reply: Any, keys: int) -> Lease:
    """Parse a LEASE reply; raise SharedMemoryUnavailable if invalid, with the stream in sync."""
    match reply:
        case [int(number), bytes(name), bytes(token), list(places)] if len(places) == keys:
            runs = tuple(_parse_runs(place) for place in places)
            return Lease(number, name.decode(errors="replace"), token, runs)
    raise SharedMemoryUnavailable(SharedResult.BAD_REPLY)


def _parse_runs(place: Any) -> tuple[tuple[int, int], ...] | None:
    if place is None:
        return None
    match place:
        case [int(length), *runs]:
            parsed = []
            for run in runs:
                match run:
                    case [int(offset), int(part)] if offset >= 0 and part > 0:
                        parsed.append((offset, part))
                    case _:
                        raise SharedMemoryUnavailable(SharedResult.BAD_REPLY)
            if sum(part for _, part in parsed) == length:
                return tuple(parsed)
    raise SharedMemoryUnavailable(SharedResult.BAD_REPLY)
