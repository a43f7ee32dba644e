"""Node state shared by its connections: store, counters, limits and drain."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from cachetier.engine.config import Config, parse_peers
from cachetier.engine.counters import Counters
from cachetier.engine.disk.health import DiskState
from cachetier.engine.disk.tier import DiskTier
from cachetier.engine.handover import Handover, HandoverRunningError, HandoverState
from cachetier.engine.memory.arena import Arena, NoRoomError
from cachetier.engine.memory.gates import Census, NamespaceAdmission, Quotas
from cachetier.engine.memory.leases import Leases
from cachetier.engine.memory.memory_store import MemoryStore
from cachetier.engine.memory.shortage import MemoryShortage
from cachetier.engine.net.access import Gatekeeper, PasswordFile
from cachetier.engine.net.guards import OpenSession
from cachetier.engine.net.tls import LiveContext
from cachetier.engine.net.transfer_threads import TransferThreads
from cachetier.engine.policies import make_policy
from cachetier.engine.store import Declined, Gate
from cachetier.wire.commands import TABLE
from cachetier.wire.envelope import parse_namespace

VERSION = "0.2.0"
# Concurrent SCANs; the oldest is dropped.
_MAX_SCANS = 16
_HTTP_LOG_INTERVAL_S = 60.0
_FAILURE_LOG_INTERVAL_S = 60.0
# Seconds to write queued values at shutdown, below the supervisor's grace period.
_DISK_GRACE_S = 5.0
# Seconds to move memory contents to disk at shutdown.
_HAND_DOWN_S = 4.0
_DISK_POLL_S = 0.005
EXIT_NO_MEMORY = 3

log = logging.getLogger(__name__)


@dataclass(slots=True)
class CallCounts:
    count: int = 0
    failed: int = 0
    seconds: float = 0.0


def _exit(reason: str) -> None:
    """End at once: an orderly end takes memory. The shared memory is freed by its readers' ends."""
    log.critical("Ending: %s", reason)
    os._exit(EXIT_NO_MEMORY)


def is_compiled() -> bool:
    """Return True if requests are served by machine code (deploy/containers/compile_engines.py)."""
    module = find_spec("cachetier.engine.net.session")
    return module is not None and not (module.origin or "").endswith(".py")


class Node:
    """Shared state of one node. Event loop only."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.counters = Counters()
        self.census = Census()
        # why local readers cannot use shared memory
        self.shm_off = "" if config.shm else "not requested"
        self.policy = make_policy(config.policy, config.memory_bytes)
        self.admission = None
        if config.admission:
            self.admission = NamespaceAdmission(lambda: self.store.usage().capacity_bytes)
        self.disk: DiskTier | None = None
        if config.disk is not None:
            self.disk = DiskTier(
                config.disk.path,
                config.disk.size_bytes,
                queue_bytes=config.disk_queue_bytes,
                max_index_bytes=config.disk_index_bytes,
                post=asyncio.get_running_loop().call_soon_threadsafe,
            )
        self.store = MemoryStore(
            config.memory_bytes,
            self.counters.evict,
            arena=self._make_arena(config),
            receiving_bytes=config.receiving_bytes,
            policy=self.policy,
            gates=self._gates(),
            lower=self.disk,
        )
        self.shortage = MemoryShortage(self.store.shed, _exit)
        self.transfers = TransferThreads(config.transfer_threads)
        self.leases = Leases()
        self.sessions: dict[int, OpenSession] = {}
        self.calls = {name: CallCounts() for name in TABLE}
        guards = config.guards
        self.gate = Gatekeeper(guards.users, config.passwords, guards.login_failures)
        self.password_file = PasswordFile(config.password_file, config.passwords)
        self.tls_contexts: list[LiveContext] = []  # of every port, rebuilt when files change
        self.draining = False
        self.handover: Handover | None = None  # latest handover, and its task
        self.handover_task: asyncio.Task[None] | None = None
        self.started_at = time.monotonic()
        self.run_id = secrets.token_hex(20)
        self._receiving = 0
        self._http_logged_at = -math.inf
        self._failures_logged: dict[str, float] = {}  # by kind
        self.late_refusals = 0  # connections waiting for a delayed login error
        self._ids = itertools.count(1)
        self._walks: OrderedDict[int, list[bytes]] = OrderedDict()

    def _make_arena(self, config: Config) -> Arena:
        """Make a shared arena if possible, else a private one (slower for local readers)."""
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        try:
            return Arena(config.memory_bytes, limit_bytes=most, shm=config.shm)
        except NoRoomError as exc:
            self.shm_off = str(exc)
            log.warning("%s; local readers use TCP instead of shared memory", exc)
            return Arena(config.memory_bytes, limit_bytes=most)

    def _gates(self) -> list[Gate]:
        gates: list[Gate] = [self.census]
        if self.admission is not None:
            gates.append(self.admission)
        if self.config.quotas:
            gates.append(Quotas(self.config.quotas, self.config.policy))
        return gates

    def loop_failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception that nothing on the event loop has handled."""
        error = context.get("exception")
        if isinstance(error, MemoryError):
            self.shortage.failed()
            return
        kind = f"{type(error).__name__}: {context.get('message', '')}"
        now = time.monotonic()
        if now >= self._failures_logged.get(kind, -math.inf) + _FAILURE_LOG_INTERVAL_S:
            self._failures_logged[kind] = now
            log.error("%s", context.get("message", kind), exc_info=error)

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in the next event loop iteration."""
        asyncio.get_running_loop().call_soon(call)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_s, call)

    def next_id(self) -> int:
        return next(self._ids)

    def looked_up(self, key: bytes, found: bool) -> None:
        """Count one lookup; EXISTS followed by GET counts once."""
        self.counters.looked_up(parse_namespace(key), found)
        self.census.looked_up(key, found)

    def http_came(self, peer: str) -> None:
        """Log an HTTP request on the RESP port, at most once a minute."""
        self.counters.closed["http"] += 1
        now = time.monotonic()
        if now >= self._http_logged_at + _HTTP_LOG_INTERVAL_S:
            self._http_logged_at = now
            log.warning(
                "Closed %s, which sent HTTP to the client port (%d so far). "
                "A web page may be trying to send commands; set --password-file",
                peer,
                self.counters.closed["http"],
            )

    def reserve(self, count: int) -> bool:
        """Return whether `count` bytes may be received now; pair with `release`."""
        if self._receiving + count > self.config.receiving_bytes:
            return False
        self._receiving += count
        return True

    def release(self, count: int) -> None:
        self._receiving -= count

    def resize(self, memory_bytes: int, now: float) -> Declined | None:
        """Resize the running store; return the reason if not possible now."""
        declined = self.store.resize(memory_bytes, now)
        if declined is None:
            self.config = replace(self.config, memory_bytes=memory_bytes)
        return declined

    def entries(self) -> int:
        disk = None if self.disk is None else self.disk.usage()
        below = 0 if disk is None else disk.entries - disk.risen
        return self.store.usage().entries + below

    def disk_trouble(self) -> str:
        """Return a message if the disk is unavailable; the node works without it."""
        disk = None if self.disk is None else self.disk.usage()
        if disk is None or disk.state is DiskState.OK:
            return ""
        return f"disk {disk.state.value}: {disk.reason}\n"

    def tick(self, now: float) -> None:
        """Run periodic work. Called once per second."""
        self.shortage.tick()
        self.leases.sweep(now)
        ended = self.store.sweep(now)
        if ended:
            log.debug("Dropped %d expired values", ended)
        if self.disk is not None:
            self.disk.tick()

    def start_handover(self, to: str, rate: int) -> Handover:
        """Start a handover to `to`, all remaining nodes as clients list them: keys are placed by
        name.

        Raise ConfigError or HandoverRunningError.
        """
        peers = parse_peers(to)
        if self.handover is not None and self.handover.state is HandoverState.RUNNING:
            raise HandoverRunningError("a handover is already in progress: see GET /stats")
        self.handover = Handover(
            self.config, self.store, self.policy, self.password_file, peers, rate
        )
        self.handover_task = asyncio.get_running_loop().create_task(self.handover.run())
        return self.handover

    async def hand_down(self) -> None:
        """Move memory contents to disk before shutdown, newest first, within the time limit."""
        if self.disk is None:
            return
        usage, end = self.store.usage(), time.monotonic() + _HAND_DOWN_S
        for key in reversed(list(itertools.islice(self.store.keys(), usage.entries))):
            entry = self.store.peek(key, time.monotonic())
            if entry is None or entry.length > self.config.disk_queue_bytes:
                continue
            while self.disk.spare_bytes < entry.length:
                if time.monotonic() > end or not self.disk.health.is_ok:
                    return
                await asyncio.sleep(_DISK_POLL_S)
            self.store.hand_down(key, time.monotonic())

    def close(self) -> None:
        """Close the store after the last client. Blocks while the disk is closed cleanly."""
        self.transfers.close()
        if self.disk is not None:
            self.disk.close(_DISK_GRACE_S)
        self.store.arena.close()

    # A scan iterates over a copy of the keys (references only), so that a key present throughout
    # is returned exactly once. A cursor is the scan's number and position; it is valid on any
    # connection.
    def walk(self, cursor: int, count: int) -> tuple[int, list[bytes]] | None:
        """Return (next cursor, keys); None for an unknown or expired cursor."""
        if cursor == 0:
            number = self.next_id()
            self._walks[number] = list(self.store.keys())
            if len(self._walks) > _MAX_SCANS:
                self._walks.popitem(last=False)
            place = 0
        else:
            number, place = cursor >> 32, cursor & 0xFFFFFFFF
        keys = self._walks.get(number)
        if keys is None:
            return None
        stop = place + count
        if stop >= len(keys):
            del self._walks[number]
            return 0, keys[place:]
        return number << 32 | stop, keys[place:stop]
