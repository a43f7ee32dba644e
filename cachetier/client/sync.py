"""The cache as vLLM's threads use it: whole batches, each with one deadline, outcomes as values.

Thread-safe; connections are kept and lent one to a batch. No method raises for anything the cache,
the network or a value may do: a caller gets one Outcome a key, in order (`talk` appends one by one,
so that a batch which breaks off keeps what came before). What goes wrong is counted
in `counters`, and a cache which keeps failing is left alone for a while (CircuitBreaker).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from cachetier.client.address import Address
from cachetier.client.breaker import CircuitBreaker
from cachetier.client.connection import Connection, ReplyError, command
from cachetier.client.errors import BrokenError, CacheError, UnreachableError
from cachetier.wire import envelope

_MAX_IDLE = 16
# Longer than any reply that is not ours may be before the connection is dropped instead of read.
_MAX_SKIP = 64 * 1024 * 1024


class Outcome(StrEnum):
    """What became of one key."""

    OK = "ok"
    MISSING = "missing"  # not there; for an EXISTS, not a failure
    CORRUPT = "corrupt"  # there, and not what was stored under this key
    REFUSED = "refused"  # the cache answered with an error: full, too large
    TIMEOUT = "timeout"
    ERROR = "error"  # unreachable, cut, out of step, denied
    OPEN = "open"  # not asked: the breaker is open


_FAILURES = {"timeout": Outcome.TIMEOUT}


@dataclass(slots=True)
class Counters:
    """Plain sums since the start; read by whoever exports them. `by_outcome` is keyed by
    (operation, outcome), operation being lookup, load or store."""

    by_outcome: dict[tuple[str, str], int] = field(default_factory=dict)
    bytes_loaded: int = 0
    bytes_stored: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, operation: str, outcomes: Sequence[Outcome], byte_count: int) -> None:
        with self._lock:
            for outcome in outcomes:
                name = (operation, outcome.value)
                self.by_outcome[name] = self.by_outcome.get(name, 0) + 1
            if operation == "load":
                self.bytes_loaded += byte_count
            else:
                self.bytes_stored += byte_count


class CacheClient:
    """`on_change(text)` hears, once each, that the cache stopped and began to answer."""

    def __init__(
        self,
        address: Address,
        password: str = "",
        breaker: CircuitBreaker | None = None,
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        self.address = address
        self.breaker = breaker or CircuitBreaker()
        self.counters = Counters()
        self._password = password
        self._on_change = on_change
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._lock = threading.Lock()
        self._closed = False

    # -- operations ----------------------------------------------------------------------------
    def exists(self, keys: Sequence[bytes], timeout_s: float) -> list[Outcome]:
        """OK for a key that is there, MISSING for one that is not."""

        def talk(connection: Connection, outcomes: list[Outcome], deadline: float) -> None:
            connection.send([b"".join(command(b"EXISTS", key) for key in keys)], deadline)
            for _ in keys:
                outcomes.append(_exists_reply(connection, deadline))  # noqa: PERF401

        return self._run("lookup", len(keys), talk, timeout_s)

    def load(self, items: Sequence[tuple[bytes, memoryview]], timeout_s: float) -> list[Outcome]:
        """Fill each view with its key's body. A view whose outcome is not OK holds rubbish."""

        def talk(connection: Connection, outcomes: list[Outcome], deadline: float) -> None:
            connection.send([b"".join(command(b"GET", key) for key, _ in items)], deadline)
            for key, target in items:
                outcomes.append(_load_reply(connection, key, target, deadline))

        size = items[0][1].nbytes if items else 0
        return self._run("load", len(items), talk, timeout_s, size)

    def store(
        self, items: Sequence[tuple[bytes, memoryview]], ttl_s: int, timeout_s: float
    ) -> list[Outcome]:
        """Store each body unless its key is there already: a key names its bytes for ever."""

        def talk(connection: Connection, outcomes: list[Outcome], deadline: float) -> None:
            tail = _set_tail(ttl_s)
            for key, body in items:
                head = _set_head(key, body, 6 if ttl_s else 4)
                connection.send([head, body, tail], deadline)
            for _ in items:
                outcomes.append(_store_reply(connection, deadline))  # noqa: PERF401

        size = items[0][1].nbytes if items else 0
        return self._run("store", len(items), talk, timeout_s, size)

    def close(self) -> None:
        """Also ends what is under way: its batches fail, its threads return."""
        with self._lock:
            self._closed = True
            for connection in self._busy:
                connection.abort()
        self._drop_idle()

    # -- one batch on one connection -----------------------------------------------------------
    def _run(
        self,
        operation: str,
        count: int,
        talk: Callable[[Connection, list[Outcome], float], None],
        timeout_s: float,
        item_bytes: int = 0,
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        if count:
            if self.breaker.allows(time.monotonic()):
                self._attempt(talk, outcomes, time.monotonic() + timeout_s, count)
            else:
                outcomes += [Outcome.OPEN] * count
        moved = item_bytes * sum(outcome is Outcome.OK for outcome in outcomes)
        self.counters.add(operation, outcomes, moved)
        return outcomes

    def _attempt(
        self,
        talk: Callable[[Connection, list[Outcome], float], None],
        outcomes: list[Outcome],
        deadline: float,
        count: int,
    ) -> None:
        try:
            self._attempt_once(talk, outcomes, deadline)
        except CacheError as exc:
            self._failed(str(exc))
            failure = _FAILURES.get(exc.reason, Outcome.ERROR)
        except Exception as exc:  # noqa: BLE001  (a cache may never cost a request)
            self._failed(f"{type(exc).__name__}: {exc}")
            failure = Outcome.ERROR
        else:
            if self.breaker.succeeded():
                self._tell(f"{self.address} answers again")
            return
        outcomes += [failure] * (count - len(outcomes))

    def _attempt_once(
        self,
        talk: Callable[[Connection, list[Outcome], float], None],
        outcomes: list[Outcome],
        deadline: float,
    ) -> None:
        """A kept connection may have been cut while it lay idle (the cache was restarted), which
        says nothing about the cache now: the batch goes once more on a new one."""
        connection = self._take_idle()
        if connection is not None:
            try:
                self._talk(connection, talk, outcomes, deadline)
            except UnreachableError:
                if outcomes:
                    raise
                self._drop_idle()
            else:
                return
        connection = Connection(self.address, self._password, deadline)
        self._talk(connection, talk, outcomes, deadline)

    def _talk(
        self,
        connection: Connection,
        talk: Callable[[Connection, list[Outcome], float], None],
        outcomes: list[Outcome],
        deadline: float,
    ) -> None:
        """Keeps the connection if all went well, closes it otherwise."""
        with self._lock:
            if self._closed:
                connection.close()
                raise UnreachableError("this client is closed")
            self._busy.add(connection)
        well = False
        try:
            talk(connection, outcomes, deadline)
            well = True
        finally:
            with self._lock:
                self._busy.discard(connection)
                keep = well and not self._closed and len(self._idle) < _MAX_IDLE
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def _failed(self, why: str) -> None:
        if self.breaker.failed(time.monotonic()):
            self._tell(f"{self.address} is left alone for a while: {why}")

    def _tell(self, text: str) -> None:
        if self._on_change is not None:
            self._on_change(text)

    def _take_idle(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _exists_reply(connection: Connection, deadline: float) -> Outcome:
    try:
        return Outcome.OK if connection.read_integer(deadline) else Outcome.MISSING
    except ReplyError as exc:
        return _refusal(exc)


def _store_reply(connection: Connection, deadline: float) -> Outcome:
    try:
        connection.read_ok(deadline)  # False: it was there already, which is as good
    except ReplyError as exc:
        return _refusal(exc)
    return Outcome.OK


def _load_reply(connection: Connection, key: bytes, target: memoryview, deadline: float) -> Outcome:
    try:
        length = connection.read_bulk_length(deadline)
    except ReplyError as exc:
        return _refusal(exc)
    if length < 0:
        return Outcome.MISSING
    if length > _MAX_SKIP and length != envelope.HEADER_BYTES + target.nbytes:
        raise BrokenError(f"a value of {length} bytes where {target.nbytes} were expected")
    header = bytearray(min(length, envelope.HEADER_BYTES))
    connection.read_into(memoryview(header), deadline)
    rest = length - len(header)
    if envelope.expected_length(header, key) != rest or rest != target.nbytes:
        connection.skip(rest, deadline)
        connection.end_bulk(deadline)
        return Outcome.CORRUPT
    connection.read_into(target, deadline)
    connection.end_bulk(deadline)
    return Outcome.OK if envelope.is_intact(header, target) else Outcome.CORRUPT


def _refusal(exc: ReplyError) -> Outcome:
    """An answered error is about this value (full, too large), unless it is about the login."""
    if str(exc).startswith(("NOAUTH", "WRONGPASS", "NOPERM", "LOADING", "MASTERDOWN")):
        raise BrokenError(str(exc)) from None
    return Outcome.REFUSED


def _set_head(key: bytes, body: memoryview, words: int) -> bytes:
    header = envelope.pack(key, body)
    length = len(header) + body.nbytes
    return b"*%d\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b" % (
        words,
        len(key),
        key,
        length,
        header,
    )


def _set_tail(ttl_s: int) -> bytes:
    tail = b"\r\n$2\r\nNX\r\n"
    if ttl_s:
        tail += b"$2\r\nEX\r\n$%d\r\n%d\r\n" % (len(str(ttl_s)), ttl_s)
    return tail
