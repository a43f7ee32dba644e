"""Values read from a node's shared memory, on the machine both are on, instead of over a socket.

    LEASE ttl_ms key...  ->  lease, name of the arena in /dev/shm, its token, for each key null or
                             its length and where it lies: [length, [offset, length], ...]
    UNLEASE lease

While the lease holds nothing is written there. Should it have ended (we were stopped for longer
than its time) the checksum, taken of our own copy, tells. A node of another machine, another
container's /dev/shm and a file left by an earlier node are told by the token in the arena's first
page. Whatever does not work is a reason, counted, and the values come over the socket.

The arena is read with preadv and not mapped: a mapping of memory which its owner gives back, or
which the system does not have, ends the reading process; a read ends in zeros or an error. It also
copies with the interpreter's lock free, which assigning from a mapping does not.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachetier.client.connection import Connection, ReplyError, command
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.replies import INTACT
from cachetier.wire import arena, envelope

# A node which cannot be read this way is asked again after so long: it may have been restarted.
REST_S = 30.0
_LEASE_S = 10.0
# Shorter values do not lie in the arena.
MIN_BYTES = 16 * 1024
# Why not; every one is a label of a counter.
UNKNOWN = "unknown_command"  # Redis, Valkey, an older node
OFF = "off"  # the node keeps its arena to itself
AWAY = "other_machine"  # there is no such arena here
STALE = "stale_arena"  # there is, of another node
DENIED = "no_access"
BROKEN = "bad_answer"
NOT_THERE = "not_leased"  # this value: missing, on disk, or too short to lie in the arena
READ = "ok"
REASONS = (READ, UNKNOWN, OFF, AWAY, STALE, DENIED, BROKEN, NOT_THERE)

Item = tuple[bytes, memoryview]


class SharedMemoryUnavailable(Exception):
    """`reason` is one of REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Lease:
    """`places` has an entry a key, in order: None, or (offset, length) runs."""

    number: int
    name: str
    token: bytes
    places: tuple[tuple[tuple[int, int], ...] | None, ...]


class SharedMemory:
    """Of one node. Thread-safe; `now` is the caller's monotonic clock."""

    def __init__(self, folder: str = arena.FOLDER) -> None:
        self._folder = Path(folder)
        self._lock = threading.Lock()
        self._open: _Arena | None = None
        self._rest_until = 0.0
        self._why = ""

    def is_resting(self, now: float) -> bool:
        return now < self._rest_until

    @property
    def why(self) -> str:
        """The reason it rests for."""
        return self._why

    def rest(self, reason: str, now: float) -> None:
        self._why = reason
        self._rest_until = now + REST_S

    def load(
        self, connection: Connection, items: Sequence[Item], deadline: float
    ) -> list[KeyOutcome | None]:
        """An outcome a key; None for what must come over the socket. NotShared if all must."""
        milliseconds = b"%d" % (_LEASE_S * 1000)
        connection.send([command(b"LEASE", milliseconds, *(key for key, _ in items))], deadline)
        try:
            lease = read_lease(connection.read_value(deadline), len(items))
        except ReplyError as exc:
            raise SharedMemoryUnavailable(
                UNKNOWN if "unknown command" in str(exc).lower() else OFF
            ) from None
        try:
            with self._arena(lease) as opened:
                return [
                    None if runs is None else _read(opened, runs, key, target)
                    for runs, (key, target) in zip(lease.places, items, strict=True)
                ]
        finally:
            connection.send([command(b"UNLEASE", b"%d" % lease.number)], deadline)
            with contextlib.suppress(ReplyError):  # its time was over
                connection.read_value(deadline)

    def close(self) -> None:
        with self._lock:
            opened, self._open = self._open, None
        if opened is not None:
            opened.leave()

    def _arena(self, lease: Lease) -> _Arena:
        """The lease's arena, entered; kept open while its node lives."""
        with self._lock:
            if self._open is None or self._open.token != lease.token:
                if self._open is not None:
                    self._open.leave()
                self._open = None
                self._open = _Arena(self._folder, lease)
            self._open.enter()
            return self._open


class _Arena:
    """An open arena; closed when its owner and everybody reading have left it."""

    def __init__(self, folder: Path, lease: Lease) -> None:
        if "/" in lease.name or lease.name.startswith(".") or not lease.name:
            raise SharedMemoryUnavailable(BROKEN)
        self.token = lease.token
        self._lock = threading.Lock()
        self._users = 1
        try:
            self.fd = os.open(folder / lease.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise SharedMemoryUnavailable(AWAY) from None
        except OSError:
            raise SharedMemoryUnavailable(DENIED) from None
        header = arena.unpack(os.pread(self.fd, arena.HEADER_BYTES, 0))
        if header is None or header.token != lease.token:
            os.close(self.fd)
            raise SharedMemoryUnavailable(STALE)

    def enter(self) -> None:
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                os.close(self.fd)

    def __enter__(self) -> _Arena:
        return self

    def __exit__(self, *_error: object) -> None:
        self.leave()


def _read(opened: _Arena, runs: Sequence[tuple[int, int]], key: bytes, target: memoryview) -> Any:
    """The value's outcome; `target` is filled by it."""
    header = bytearray(envelope.HEADER_BYTES)
    if sum(length for _, length in runs) != len(header) + target.nbytes:
        return KeyOutcome.CORRUPT
    waiting = [memoryview(header), target]
    for offset, length in runs:
        while length:
            wanted = _first(waiting, length)
            try:
                count = os.preadv(opened.fd, wanted, offset)
            except OSError:
                return None
            if not count:
                return None  # beyond the arena's end
            offset, length = offset + count, length - count
            _drop(waiting, count)
    if envelope.expected_length(header, key) != target.nbytes:
        return KeyOutcome.CORRUPT
    return INTACT[envelope.is_intact(header, target)]


def _first(views: Sequence[memoryview], count: int) -> list[memoryview]:
    """The first `count` bytes of `views`."""
    found = []
    for view in views:
        part = view[:count]
        found.append(part)
        count -= part.nbytes
        if not count:
            break
    return found


def _drop(views: list[memoryview], count: int) -> None:
    """Take the first `count` bytes off `views`, in place."""
    while views and count >= views[0].nbytes:
        count -= views[0].nbytes
        del views[0]
    if count:
        views[0] = views[0][count:]


def read_lease(reply: Any, keys: int) -> Lease:
    """NotShared for anything which is not an answer to LEASE; the connection is in step."""
    match reply:
        case [int(number), bytes(name), bytes(token), list(places)] if len(places) == keys:
            runs = tuple(_runs(place) for place in places)
            return Lease(number, name.decode(errors="replace"), token, runs)
    raise SharedMemoryUnavailable(BROKEN)


def _runs(place: Any) -> tuple[tuple[int, int], ...] | None:
    if place is None:
        return None
    match place:
        case [int(length), *runs]:
            found = []
            for run in runs:
                match run:
                    case [int(offset), int(part)] if offset >= 0 and part > 0:
                        found.append((offset, part))
                    case _:
                        raise SharedMemoryUnavailable(BROKEN)
            if sum(part for _, part in found) == length:
                return tuple(found)
    raise SharedMemoryUnavailable(BROKEN)
