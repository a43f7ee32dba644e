"""Client of one cache node for multi-threaded use: batches with one deadline each.

Thread-safe; each batch borrows a pooled connection. Cache, network and value failures never raise:
the caller gets one KeyOutcome per key, in order (`talk` appends them one by one, so that an aborted
batch keeps earlier outcomes). Failures are counted in `counters`; the circuit breaker skips a
failing node until a background probe reaches it. `cachetier.client.pool.CachePool` combines
several nodes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cachetier.client import replies, shared_memory
from cachetier.client.address import Address
from cachetier.client.breaker import CircuitBreaker
from cachetier.client.connection import (
    CacheError,
    Connection,
    ReplyError,
    UnreachableError,
    command,
)
from cachetier.client.outcomes import Counters, KeyOutcome
from cachetier.client.probe import NodeProbe
from cachetier.client.replies import Redirects
from cachetier.client.shared_memory import SharedMemory, SharedMemoryUnavailable, SharedResult

__all__ = ["CacheClient", "Counters", "KeyOutcome"]

_MAX_IDLE = 16
_FAILURES = {"timeout": KeyOutcome.TIMEOUT}
_ASKING = command(b"ASKING")
# Connection name while values are moved here from their previous owner: our nodes count them.
_MOVING = command(b"CLIENT", b"SETNAME", b"rebalance")
_MOVED = command(b"CLIENT", b"SETNAME", b"")

# Run one batch on one connection: append a KeyOutcome per key until the deadline.
BatchRunner = Callable[[Connection, list[KeyOutcome], float], None]


class CacheClient:
    """Client of one node. `on_change(text)` is called once when the node stops or resumes
    responding.

    On cluster nodes, operations fill `redirects` for each key answered with MOVED; `asking` is
    set for a request redirected by ASK.
    """

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
        self.is_retired = False  # left the pool: it may stop at any time without a report
        self._password = password
        self._on_change = on_change or (lambda _text: None)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._shared = SharedMemory()
        self._probe = NodeProbe(self.breaker, self._ping, self._opened, self._recovered)

    def exists(
        self,
        keys: Sequence[bytes],
        timeout_s: float,
        redirects: Redirects | None = None,
        asking: bool = False,
    ) -> list[KeyOutcome]:
        def talk(connection: Connection, outcomes: list[KeyOutcome], deadline: float) -> None:
            ask = _ASKING if asking else b""
            connection.send([b"".join(ask + command(b"EXISTS", key) for key in keys)], deadline)
            for key in keys:
                _skip_asking_reply(connection, asking, deadline)
                outcomes.append(replies.read_exists_reply(connection, key, redirects, deadline))

        return self._run("lookup", len(keys), talk, timeout_s)

    def load(
        self,
        items: Sequence[tuple[bytes, memoryview]],
        timeout_s: float,
        redirects: Redirects | None = None,
        asking: bool = False,
    ) -> list[KeyOutcome]:
        """Fill each view with its key's body; views with another outcome than OK are undefined.

        Corrupt values are deleted: stores keep what is there, so nothing else would replace them.
        """

        def talk(connection: Connection, outcomes: list[KeyOutcome], deadline: float) -> None:
            leased = self._load_shared(connection, items, deadline)
            rest = [item for item, value in zip(items, leased, strict=True) if value is None]
            ask = _ASKING if asking else b""
            connection.send([b"".join(ask + command(b"GET", key) for key, _ in rest)], deadline)
            for value, (key, target) in zip(leased, items, strict=True):
                if value is not None:
                    outcomes.append(value)
                    continue
                _skip_asking_reply(connection, asking, deadline)
                outcomes.append(
                    replies.read_load_reply(connection, key, target, redirects, deadline)
                )
            results = zip(items, outcomes, strict=True)
            corrupt = [key for (key, _), outcome in results if outcome is KeyOutcome.CORRUPT]
            _delete(connection, corrupt, asking, deadline)

        size = items[0][1].nbytes if items else 0
        return self._run("load", len(items), talk, timeout_s, size)

    def store(
        self,
        items: Sequence[tuple[bytes, memoryview]],
        ttl_s: int,
        timeout_s: float,
        redirects: Redirects | None = None,
        asking: bool = False,
    ) -> list[KeyOutcome]:
        """Store each body unless its key exists: keys are content-addressed."""
        talk = self._storing(items, ttl_s, redirects, asking)
        size = items[0][1].nbytes if items else 0
        return self._run("store", len(items), talk, timeout_s, size)

    def adopt(
        self, items: Sequence[tuple[bytes, memoryview]], ttl_s: int, timeout_s: float
    ) -> list[KeyOutcome]:
        """Store values read from their previous owner; counted by our nodes as rebalanced."""
        store = self._storing(items, ttl_s, None, False)

        def talk(connection: Connection, outcomes: list[KeyOutcome], deadline: float) -> None:
            connection.send([_MOVING], deadline)
            _skip_ok(connection, deadline)
            store(connection, outcomes, deadline)
            connection.send([_MOVED], deadline)
            _skip_ok(connection, deadline)

        return self._run("store", len(items), talk, timeout_s, items[0][1].nbytes)

    def _storing(
        self,
        items: Sequence[tuple[bytes, memoryview]],
        ttl_s: int,
        redirects: Redirects | None,
        asking: bool,
    ) -> BatchRunner:
        def talk(connection: Connection, outcomes: list[KeyOutcome], deadline: float) -> None:
            tail = replies.encode_set_tail(ttl_s)
            ask = _ASKING if asking else b""
            for key, body in items:
                head = replies.encode_set_head(key, body, 6 if ttl_s else 4)
                connection.send([ask + head, body, tail], deadline)
            for key, _ in items:
                _skip_asking_reply(connection, asking, deadline)
                outcomes.append(replies.read_store_reply(connection, key, redirects, deadline))

        return talk

    def _load_shared(
        self, connection: Connection, items: Sequence[tuple[bytes, memoryview]], deadline: float
    ) -> Sequence[KeyOutcome | None]:
        """Return outcomes of shared memory reads, None for keys to read over the socket."""
        nothing: list[KeyOutcome | None] = [None] * len(items)
        if items[0][1].nbytes < shared_memory.MIN_BYTES:
            return nothing
        now = time.monotonic()
        if self._shared.is_resting(now):
            self.counters.add_shared(self._shared.why, len(items))
            return nothing
        try:
            values = self._shared.load(connection, items, deadline)
        except SharedMemoryUnavailable as exc:
            self._shared.rest(exc.reason, now)
            self.counters.add_shared(exc.reason, len(items))
            return nothing
        left = sum(outcome is None for outcome in values)
        self.counters.add_shared(SharedResult.OK, len(items) - left)
        self.counters.add_shared(SharedResult.NOT_LEASED, left)
        return values

    def ask(self, *words: bytes, timeout_s: float) -> Any:
        """Return a metadata reply, outside counters and breaker; raise CacheError or ReplyError."""
        deadline = time.monotonic() + timeout_s
        reply: list[Any] = []

        def talk(connection: Connection, _outcomes: list[KeyOutcome], deadline: float) -> None:
            connection.send([command(*words)], deadline)
            reply.append(connection.read_value(deadline))

        self._attempt_once(talk, [], deadline)
        return reply[0]

    def close(self) -> None:
        """Close all connections; batches in progress fail."""
        self._probe.close()
        with self._lock:
            self._closed = True
            for connection in self._busy:
                connection.abort()
        self._drop_idle()
        self._shared.close()

    def _run(
        self, operation: str, count: int, talk: BatchRunner, timeout_s: float, item_bytes: int = 0
    ) -> list[KeyOutcome]:
        outcomes: list[KeyOutcome] = []
        if count:
            if self.breaker.is_open:
                outcomes += [KeyOutcome.OPEN] * count
            elif timeout_s <= 0.0:  # used up elsewhere: no failure of this node
                outcomes += [KeyOutcome.TIMEOUT] * count
            else:
                self._attempt(talk, outcomes, time.monotonic() + timeout_s, count)
        moved = item_bytes * sum(outcome is KeyOutcome.OK for outcome in outcomes)
        self.counters.add(operation, outcomes, moved)
        return outcomes

    def _attempt(
        self, talk: BatchRunner, outcomes: list[KeyOutcome], deadline: float, count: int
    ) -> None:
        try:
            self._attempt_once(talk, outcomes, deadline)
        except CacheError as exc:
            failure = _FAILURES.get(exc.reason, KeyOutcome.ERROR)
            self._failed(str(exc), is_silent=failure is KeyOutcome.TIMEOUT)
        except Exception as exc:  # noqa: BLE001  (a cache may never cost a request)
            self._failed(f"{type(exc).__name__}: {exc}")
            failure = KeyOutcome.ERROR
        else:
            if self.breaker.succeeded():
                self._recovered()
            return
        outcomes += [failure] * (count - len(outcomes))

    def _attempt_once(self, talk: BatchRunner, outcomes: list[KeyOutcome], deadline: float) -> None:
        """Run the batch; retry once on a new connection if a pooled one was closed."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
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
        self, connection: Connection, talk: BatchRunner, outcomes: list[KeyOutcome], deadline: float
    ) -> None:
        """Run the batch; return the connection to the pool on success, close it otherwise."""
        with self._lock:
            if self._closed:
                connection.close()
                raise UnreachableError("the client is closed")
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

    def _failed(self, why: str, *, is_silent: bool = False) -> None:
        """Count a failure; after a timeout, probe at once instead of waiting for another one."""
        if self.breaker.failed(time.monotonic()):
            self._opened(why)
        elif is_silent:
            self._probe.start()

    def _opened(self, why: str) -> None:
        self._report(f"{self.address}: circuit breaker opened: {why}")
        self._probe.start()

    def _recovered(self) -> None:
        self._report(f"{self.address} responds again")

    def _report(self, text: str) -> None:
        if not self.is_retired:
            self._on_change(text)

    def _ping(self, timeout_s: float) -> str:
        """Return why the node does not respond, "" if it does."""
        try:
            self.ask(b"PING", timeout_s=timeout_s)
        except ReplyError as exc:
            # An ACL user may lack PING; such a node responds.
            return "" if str(exc).startswith("NOPERM") else str(exc)
        except Exception as exc:  # noqa: BLE001  (a cache may never cost a request)
            return str(exc) or type(exc).__name__
        return ""

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _delete(connection: Connection, keys: Sequence[bytes], asking: bool, deadline: float) -> None:
    if not keys:
        return
    ask = _ASKING if asking else b""
    connection.send([b"".join(ask + command(b"DEL", key) for key in keys)], deadline)
    for _ in keys:
        _skip_asking_reply(connection, asking, deadline)
        with contextlib.suppress(ReplyError):  # such as an ACL without DEL
            connection.read_integer(deadline)


def _skip_ok(connection: Connection, deadline: float) -> None:
    with contextlib.suppress(ReplyError):  # such as an ACL without CLIENT
        connection.read_ok(deadline)


def _skip_asking_reply(connection: Connection, asking: bool, deadline: float) -> None:
    if asking:
        # An error here means the node is not in a cluster; the command's own reply decides.
        _skip_ok(connection, deadline)
