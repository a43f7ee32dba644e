"""Client with random operations that checks every reply.

Each worker is the only writer of its keys and tracks the versions that may exist: the last one
acknowledged and those with unknown outcome after a kill. A cache may always miss. Values of other
workers' keys must be complete and belong to their key.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import redis

from tests.soak import values
from tests.soak.leases import Reader
from tests.soak.node import PASSWORD

KEYS_EACH = 400
# Tolerance after expiry: request time and a busy machine.
_SLACK_S = 2.0
_BROKEN = (redis.ConnectionError, redis.TimeoutError, OSError)


class WrongError(AssertionError):
    """The node returned a wrong reply."""


@dataclass(slots=True)
class _Known:
    """Possible versions, and the expiry of the last one."""

    may: set[int] = field(default_factory=set)
    ends_at: float | None = None


class Worker(threading.Thread):
    def __init__(
        self, number: int, workers: int, port: int, seed: int, max_bytes: int, shm: bool = False
    ) -> None:
        super().__init__(name=f"worker {number}", daemon=True)
        self._chance = random.Random(seed * 1000 + number)
        self._first = number * KEYS_EACH
        self._all = workers * KEYS_EACH
        self._port = port
        self._max_bytes = max_bytes
        self._known = {self._first + at: _Known() for at in range(KEYS_EACH)}
        self._versions = 0
        self._db: Any = self._connect()
        self._shm = Reader(self._port) if shm else None
        self.stop = threading.Event()
        self.wrong: str | None = None
        self.done: Counter[str] = Counter()
        self.compared_bytes = 0

    def _connect(self) -> redis.Redis:
        return redis.Redis(
            port=self._port, password=PASSWORD, socket_timeout=20, single_connection_client=False
        )

    def run(self) -> None:
        kinds, weights = zip(*self._KINDS, strict=True)
        while not self.stop.is_set():
            kind = self._chance.choices(kinds, weights)[0]
            try:
                kind(self)
                self.done[kind.__name__.strip("_")] += 1
            except WrongError as exc:
                self.wrong = f"{self.name}: {kind.__name__}: {exc}"
                return
            except redis.ResponseError as exc:
                if not str(exc).startswith(("OOM", "ERR draining", "ERR the value")):
                    self.wrong = f"{self.name}: {kind.__name__}: {exc}"
                    return
                self.done["refused"] += 1
            except _BROKEN:
                self.done["broken"] += 1
                time.sleep(0.02)  # node killed: do not spin until it is back

    # -- writing -------------------------------------------------------------------------------
    def _set(self) -> None:
        number, known = self._own()
        self._versions += 1
        version = self._versions
        value = values.make(number, version, self._length())
        ttl_ms = self._chance.randrange(50, 5000) if self._chance.random() < 0.3 else None
        only_new = self._chance.random() < 0.3
        sent_at = time.monotonic()
        known.may.add(version)  # may exist from now on
        before, known.ends_at = known.ends_at, None
        stored = self._db.set(values.key_of(number), value, px=ttl_ms, nx=only_new)
        if stored:
            known.may = {version}
            known.ends_at = None if ttl_ms is None else time.monotonic() + ttl_ms / 1000
        else:
            known.may.discard(version)
            known.ends_at = before
            if before is not None and before + _SLACK_S < sent_at:
                raise WrongError(f"key {number} is said to be there after its end")

    def _delete(self) -> None:
        number, known = self._own()
        self._db.delete(values.key_of(number))
        known.may.clear()
        known.ends_at = None

    def _expire(self) -> None:
        number, known = self._own()
        ttl_ms = self._chance.randrange(1, 3000)
        known.ends_at = None  # old or new expiry until the reply arrives
        if self._db.pexpire(values.key_of(number), ttl_ms):
            known.ends_at = time.monotonic() + ttl_ms / 1000

    def _set_half(self) -> None:
        """Disconnect in the middle of a SET: nothing of it may become visible."""
        number, _ = self._own()
        length = self._length() + 100_000
        key = values.key_of(number)
        with socket.create_connection(("127.0.0.1", self._port), timeout=20) as sock:
            sock.sendall(b"AUTH %s\r\n" % PASSWORD.encode())
            sock.sendall(
                b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(key), key, length)
                + self._chance.randbytes(50_000)
            )
            if self._chance.random() < 0.5:
                sock.recv(5)  # AUTH reply: the rest has most likely arrived too

    # -- reading -------------------------------------------------------------------------------
    def _get(self) -> None:
        number = self._any()
        requested_at = time.monotonic()
        self._check(number, self._db.get(values.key_of(number)), requested_at)

    def _get_own(self) -> None:
        number, _ = self._own()
        requested_at = time.monotonic()
        self._check(number, self._db.get(values.key_of(number)), requested_at)

    def _mget(self) -> None:
        numbers = [self._any() for _ in range(self._chance.randrange(1, 8))]
        requested_at = time.monotonic()
        found = self._db.mget([values.key_of(number) for number in numbers])
        for number, value in zip(numbers, found, strict=True):
            self._check(number, value, requested_at)

    def _getrange(self) -> None:
        """Use a key of this worker, so that whole and part have the same version."""
        number, known = self._own()
        key = values.key_of(number)
        first, last = sorted(self._chance.randrange(-200_000, 200_000) for _ in range(2))
        if (first < 0) != (last < 0):
            last = -1 if first < 0 else last
        requested_at = time.monotonic()
        whole = self._db.get(key)
        part = self._db.getrange(key, first, last)
        self._check(number, whole, requested_at)
        if whole is not None and part and not values.part_is_right(whole, first, last, part):
            raise WrongError(f"GETRANGE {first} {last} of key {number} is not a part of it")
        if whole is None and part and not known.may:
            raise WrongError(f"key {number} came back in part")

    def _get_and_leave(self) -> None:
        """Request much data and disconnect without reading."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=20) as sock:
            sock.sendall(b"AUTH %s\r\n" % PASSWORD.encode())
            keys = b" ".join(values.key_of(self._any()) for _ in range(20))
            sock.sendall(b"MGET " + keys + b"\r\n")
            sock.recv(self._chance.randrange(1, 100_000))

    def _get_slowly(self) -> None:
        """Read slowly: data being sent must not change."""
        number = self._any()
        requested_at = time.monotonic()
        key = values.key_of(number)
        with socket.create_connection(("127.0.0.1", self._port), timeout=20) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            sock.sendall(b"AUTH %s\r\nGET %s\r\n" % (PASSWORD.encode(), key))
            time.sleep(self._chance.random() * 0.2)  # simulates a slow reader
            with sock.makefile("rb") as came:
                words = [came.readline(), came.readline()]
                if not words[1].startswith(b"$") or words[1] == b"$-1\r\n":
                    return
                length = int(words[1][1:])
                value = came.read(length)
        if len(value) == length:  # else the node was killed
            self._check(number, value, requested_at)

    def _lease(self) -> None:
        """Read values from shared memory, which must not change during the lease."""
        if self._shm is None:
            return
        numbers = [self._any() for _ in range(self._chance.randrange(1, 4))]
        requested_at = time.monotonic()
        found = self._shm.lease([values.key_of(number) for number in numbers])
        for number, value in zip(numbers, found.values, strict=True):
            self._check(number, value, requested_at)
        time.sleep(self._chance.random() * 0.05)  # others write concurrently
        for number, value in zip(numbers, found.values, strict=True):
            if value is not None and self._shm.read(found, numbers.index(number)) != value:
                raise WrongError(f"key {number} changed under its lease")
        self._shm.end(found)

    def _exists(self) -> None:
        number, known = self._own()
        requested_at = time.monotonic()
        if self._db.exists(values.key_of(number)):
            self._check_may(number, known, requested_at)

    def _check(self, number: int, value: bytes | None, requested_at: float) -> None:
        if value is None:
            return
        try:
            version = values.version_of(number, value)
        except ValueError as exc:
            raise WrongError(f"key {number}: {exc}") from None
        self.compared_bytes += len(value)
        known = self._known.get(number)
        if known is None:
            return
        self._check_may(number, known, requested_at)
        if version not in known.may:
            raise WrongError(f"key {number}: version {version}, may be {sorted(known.may)}")

    def _check_may(self, number: int, known: _Known, requested_at: float) -> None:
        if not known.may:
            raise WrongError(f"key {number} is there after it was deleted")
        if known.ends_at is not None and known.ends_at + _SLACK_S < requested_at:
            raise WrongError(
                f"key {number} is there {requested_at - known.ends_at:.1f} s after its end"
            )

    # -- chance --------------------------------------------------------------------------------
    def _own(self) -> tuple[int, _Known]:
        number = self._first + self._chance.randrange(KEYS_EACH)
        return number, self._known[number]

    def _any(self) -> int:
        return self._chance.randrange(self._all)

    def _length(self) -> int:
        """Return a random length: mostly kilobytes, sometimes blocks of megabytes."""
        return min(int(self._chance.paretovariate(0.35) * 100), self._max_bytes)

    _KINDS = (
        (_set, 40),
        (_delete, 5),
        (_expire, 4),
        (_set_half, 1),
        (_get, 25),
        (_get_own, 15),
        (_mget, 6),
        (_getrange, 4),
        (_get_and_leave, 1),
        (_exists, 5),
        (_get_slowly, 4),
        (_lease, 6),
    )
