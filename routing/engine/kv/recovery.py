"""State machine for one event source: ordering, loss, duplicates and publisher restarts.

No I/O and no clock. Batches are applied once, in order, without gaps; where that is impossible the
state is cleared first, since a lost removal would never be corrected. The publisher sends no
heartbeat, so every replay but the first begins with the last known batch: if it differs, the
process is a new one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import xxhash

REPLAY_TIMEOUT_S = 5.0  # until the first frame; an idle publisher answers within 0.1 s
RESUME_S = 1.0  # between frames: the rest, with its end, was dropped and is requested again
IDLE_POLL_S = 5.0  # detects a lost last batch
BACKOFF_LONGEST_S = 30.0
HELD_MESSAGES = 10_000
HELD_BYTES = 64 * 1024 * 1024
_REMEMBERED_DIGESTS = 4096  # replayed batches that may still arrive live
_MAX_STUCK_REPLAYS = 2  # consecutive replays without progress

REASONS = (
    "connected",
    "disconnected",
    "no_replay",
    "replay",
    "replay_truncated",
    "replay_hole",
    "replay_timeout",
    "replay_stray",
    "gap",
    "gap_filled",
    "gap_lost",
    "joined_late",
    "duplicate",
    "held_overflow",
    "while_waiting",
    "poll",
    "poll_found",
    "rebuild",
    "rebuild_useless",
    "restart_sequence",
    "restart_replay",
    "restart_process",
    "restart_unverified",
    "lost",
    "reset",
)


class RecoveryPhase(Enum):
    WAITING = "waiting"
    CATCHING_UP = "catching_up"  # replay in progress; live messages are held
    FOLLOWING = "following"


class ReplayPurpose(Enum):
    START = "start"  # from 0, empty state
    GAP = "gap"  # from the last batch, messages are missing
    VERIFY = "verify"  # from the last batch, after a reconnect
    POLL = "poll"  # from the last batch, while idle
    REBUILD = "rebuild"  # from 0, after a failed replay


class Output(Protocol):
    def apply(self, payload: bytes, live: bool) -> None:
        """Apply after all earlier ones; `live`: not from a replay."""

    def clear(self, waiting_too: bool) -> None:
        """Drop all blocks; with `waiting_too`, discard unapplied batches."""

    def replay(self, start: int, fresh: bool) -> None:
        """Request a replay; `fresh`: on a new socket, since answers to the old one may still
        arrive.
        """


@dataclass(slots=True, eq=False)
class _Replay:
    purpose: ReplayPurpose
    start: int
    digest: int | None  # of batch `start`; None: unknown
    received_at: float
    first: int = -1  # first batch received
    got: int = 0
    ignore: bool = False


class SourceFollower:
    """State of one source. `replayable`: it has a replay endpoint."""

    def __init__(self, out: Output, replayable: bool) -> None:
        self._out = out
        self._replayable = replayable
        self.phase = RecoveryPhase.WAITING
        self.connected = False
        self.last = -1
        self.counts = dict.fromkeys(REASONS, 0)
        self._since = -1  # first batch since the last clearing
        self._unsure = False  # empty without proof that the worker is empty
        self._digest = 0
        self._replayed: dict[int, int] = {}  # digests of batches that may still arrive live
        self._held: deque[tuple[int, bytes]] = deque()
        self._held_bytes = 0
        self._ask: _Replay | None = None
        self._failures = 0
        self._stuck = 0
        self._rebuild_at: float | None = None
        self._poll_at = 0.0
        self._started: float | None = None

    @property
    def partial(self) -> bool:
        """Return True if history is missing: known blocks are correct but not complete."""
        return self._since > 0 if self.last >= 0 else self._unsure

    def is_connected(self, now: float) -> None:
        self.connected = True
        self._count("connected")
        self._drop_held()  # from the previous connection; the replay covers them
        self._poll_at = now + IDLE_POLL_S
        if not self._replayable:
            self._count("no_replay")
            self.phase = RecoveryPhase.FOLLOWING
            if self.last >= 0:
                self._restart("restart_unverified", now)
        elif self.last < 0:
            self._begin(ReplayPurpose.START, now, fresh=True)
        else:
            self._begin(ReplayPurpose.VERIFY, now, fresh=True)

    def is_disconnected(self) -> None:
        self.connected = False
        self._count("disconnected")

    def live(self, number: int, payload: bytes, now: float) -> None:
        self._poll_at = now + IDLE_POLL_S
        if self.phase is RecoveryPhase.WAITING:
            self._count("while_waiting")  # from a dead process
        elif self.phase is RecoveryPhase.CATCHING_UP or not self._take_live(number, payload, now):
            self._hold(number, payload)

    def replayed(self, number: int, payload: bytes, now: float) -> None:
        ask = self._ask
        if ask is None:
            self._count("replay_stray")
            return
        ask.received_at = now
        if ask.first < 0:
            ask.first = number
            self._judge_first(ask, number, payload, now)
            if self._ask is not ask:
                return  # another process: replay restarted
        if ask.ignore or (number <= self.last and self.last >= 0):
            return
        if self.last >= 0 and number > self.last + 1:
            # Dropped in transit: a ROUTER drops what exceeds its high-water mark, and the end of
            # the replay may be lost as well. The rest would be requested again in any case.
            self._count("replay_hole")
            if self._progress(ask):
                self._ask = None
                self._begin(ReplayPurpose.GAP, now, fresh=True)
            else:
                ask.ignore = True
            return
        ask.got += 1
        self._accept(number, payload, replayed=True)

    def replay_ended(self, now: float) -> None:
        ask = self._ask
        if ask is None:
            self._count("replay_stray")
            return
        self._ask = None
        self._failures = 0
        self._poll_at = now + IDLE_POLL_S
        if ask.first < 0 and ask.digest is not None:
            # a publisher keeps its last batch, so this is a new process
            self._restart("restart_replay", now)
            return
        if ask.first < 0 and self.last < 0:
            self._unsure = False  # nothing published yet: nothing missing
        if ask.purpose is ReplayPurpose.GAP and ask.got:
            self._count("gap_filled")
        elif ask.purpose is ReplayPurpose.POLL and ask.got:
            self._count("poll_found")
        self._follow(now)

    def tick(self, now: float) -> None:
        ask = self._ask
        if ask is not None:
            if now >= ask.received_at + (RESUME_S if ask.got else REPLAY_TIMEOUT_S):
                self._timed_out(ask, now)
        elif self.phase is not RecoveryPhase.FOLLOWING or not self._replayable:
            return
        elif self._rebuild_at is not None:
            if now >= self._rebuild_at:
                self._rebuild_at = None
                self._count("rebuild")
                self._begin(ReplayPurpose.REBUILD, now, fresh=True)
        elif now >= self._poll_at:
            self._count("poll")
            self._begin(ReplayPurpose.POLL, now, fresh=False)

    def process_started(self, at: float, now: float) -> None:
        """Handle the worker's process start time from its metrics."""
        before, self._started = self._started, at
        if (
            before is not None
            and abs(at - before) > 1.0
            and self.phase is not RecoveryPhase.WAITING
        ):
            self._restart("restart_process", now)

    def is_lost(self) -> None:
        """Handle a worker whose port refuses connections: its process is gone."""
        self._count("lost")
        self._forget()
        self._drop_held()
        self._ask = None
        self._started = None
        self.phase = RecoveryPhase.WAITING

    def is_back(self, now: float) -> None:
        """Handle a worker that passes health checks."""
        if self.phase is RecoveryPhase.WAITING and self.connected:
            self.is_connected(now)

    def was_reset(self) -> None:
        """Handle a reset by the router; the worker's event comes with its next step."""
        self._count("reset")
        self._out.clear(waiting_too=False)

    def _take_live(self, number: int, payload: bytes, now: float) -> bool:
        """Return False if the message must be held until a replay."""
        last = self.last
        if number == last + 1:
            self._accept(number, payload, replayed=False)
            return True
        if number <= last:
            digest = xxhash.xxh3_64_intdigest(payload)
            if self._replayed.get(number) == digest or (number, digest) == (last, self._digest):
                self._count("duplicate")
                return True
            self._restart("restart_sequence", now)
            return not self._replayable and self._take_live(number, payload, now)
        if self._replayable and self._stuck < _MAX_STUCK_REPLAYS:
            self._count("gap")
            self._begin(ReplayPurpose.GAP if last >= 0 else ReplayPurpose.START, now, fresh=False)
            return False
        self._count("gap_lost" if last >= 0 else "joined_late")
        self._forget()
        self._accept(number, payload, replayed=False)
        return True

    def _hold(self, number: int, payload: bytes) -> None:
        if len(self._held) >= HELD_MESSAGES or self._held_bytes + len(payload) > HELD_BYTES:
            self._count("held_overflow")  # the gap is detected and replayed later
            return
        self._held.append((number, payload))
        self._held_bytes += len(payload)

    def _drop_held(self) -> None:
        self._held.clear()
        self._held_bytes = 0

    def _accept(self, number: int, payload: bytes, replayed: bool) -> None:
        if self.last < 0:
            self._since = number
        self.last = number
        self._digest = xxhash.xxh3_64_intdigest(payload)
        self._stuck = 0
        if replayed:
            self._replayed[number] = self._digest
            if len(self._replayed) > _REMEMBERED_DIGESTS:
                del self._replayed[next(iter(self._replayed))]
        elif self._replayed:
            self._replayed.clear()  # live messages are ordered: none of these can arrive now
        self._out.apply(payload, not replayed)

    def _begin(self, purpose: ReplayPurpose, now: float, fresh: bool) -> None:
        is_continuing = self.last >= 0 and purpose not in (
            ReplayPurpose.START,
            ReplayPurpose.REBUILD,
        )
        start = self.last if is_continuing else 0
        if self._ask is not None:
            fresh = True
            if self._ask.purpose is ReplayPurpose.REBUILD:
                self._rebuild_at = now
        self._ask = _Replay(purpose, start, self._digest if is_continuing else None, now)
        if purpose not in (ReplayPurpose.POLL, ReplayPurpose.REBUILD):
            self.phase = RecoveryPhase.CATCHING_UP
        self._count("replay")
        self._out.replay(start, fresh)

    def _judge_first(self, ask: _Replay, number: int, payload: bytes, now: float) -> None:
        if ask.purpose is ReplayPurpose.REBUILD:
            if 0 <= self._since <= number:
                self._count("rebuild_useless")  # the publisher keeps less history than the router
                ask.ignore = True
                return
            self._forget()
            self.phase = RecoveryPhase.CATCHING_UP
        if self.last < 0:
            if number > 0:
                self._count("replay_truncated")
        elif ask.start == number and ask.digest is not None:
            if xxhash.xxh3_64_intdigest(payload) != ask.digest:
                self._restart("restart_replay", now)
        elif ask.purpose is ReplayPurpose.VERIFY:
            self._restart("restart_replay", now)  # ambiguous: clear rather than keep wrong state
        elif number > self.last + 1:
            self._count("gap_lost")
            self._forget()

    def _progress(self, ask: _Replay) -> bool:
        """Return True if an incomplete replay should be repeated."""
        self._stuck = 0 if ask.got else self._stuck + 1
        return self._stuck < _MAX_STUCK_REPLAYS

    def _follow(self, now: float) -> None:
        """Apply held live messages; a gap starts another replay."""
        self.phase = RecoveryPhase.FOLLOWING
        held = self._held
        while held and self.phase is RecoveryPhase.FOLLOWING:
            number, payload = held[0]
            if number > self.last + 1:
                self._stuck += 1  # the replay should have included it
            if number < self._since:
                self._count("duplicate")  # older than the publisher's history
                taken = True
            else:
                taken = self._take_live(number, payload, now)
            if taken or self.last < 0:  # a restart replays it if it is still valid
                held.popleft()
                self._held_bytes -= len(payload)

    def _timed_out(self, ask: _Replay, now: float) -> None:
        self._count("replay_timeout")
        self._ask = None
        if ask.got and ask.purpose is not ReplayPurpose.POLL:
            self._begin(ReplayPurpose.GAP, now, fresh=True)  # resume after the interruption
            return
        self._failures = min(self._failures + 1, 10)
        wait = min(2.0**self._failures, BACKOFF_LONGEST_S)
        if ask.purpose is ReplayPurpose.POLL:
            self._poll_at = now + wait
            return
        if ask.purpose in (ReplayPurpose.GAP, ReplayPurpose.VERIFY):
            self._count("gap_lost")
            self._forget()
        self._unsure = True
        self._stuck = _MAX_STUCK_REPLAYS  # accept the gap: apply held messages as they are
        self._follow(now)
        self._stuck = 0
        if self.partial:
            self._rebuild_at = now + wait

    def _restart(self, reason: str, now: float) -> None:
        """Clear the state: a new process publishes."""
        self._count(reason)
        self._forget()
        self._unsure = False
        if reason != "restart_process":
            self._started = None
        if self._replayable:
            self._begin(ReplayPurpose.START, now, fresh=True)

    def _forget(self) -> None:
        self.last = self._since = -1
        self._digest = 0
        self._replayed.clear()
        self._rebuild_at = None
        self._stuck = 0
        self._out.clear(waiting_too=True)

    def _count(self, reason: str) -> None:
        self.counts[reason] += 1
