"""Admission control: rate limits, concurrency slots and the request queue; all are optional.

Rates (requests/min, tokens/min) are checked on arrival and rejected with Retry-After. A request
without a slot queues here, so that its worker is chosen when a slot is free. Tokens are charged by
estimate; the engine's count corrects the charge at the end.

Keys share slots by fair queueing over computed tokens (fair_queue.py). A full queue drops the
newest request of the key with the largest backlog.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Protocol, cast

from console.processkit.metrics import Histogram
from routing.engine.access.callers import (
    RUNNING,
    WAITING,
    AdmissionRequest,
    Bucket,
    Caller,
    CallerPace,
    Ticket,
    effective_rates,
    remaining_tokens,
    resize_bucket,
)
from routing.engine.access.fair_queue import FairQueue, Flow
from routing.engine.access.keys import KeyRing
from routing.engine.config import AdmissionConfig, Key, Rates
from routing.engine.errors import Refusal
from routing.engine.policies.base import RequestFacts

_INITIAL_COMPLETION_TOKENS = 256.0  # initial estimate of completion tokens
_COMPLETION_WEIGHT = 1 / 32  # EWMA weight of the completion estimate
_LONGEST_RETRY_S = 3600
_NO_RATES = Rates()
NO_LIMIT = 1 << 60


def _is_ready(flow: Flow) -> bool:
    return cast(Caller, flow).ready()


class PeerDemand(Protocol):
    """In-flight and queued requests of other routers (peers.view)."""

    def claim(self, key: str, most: int) -> int:
        """Return the part of an in-flight limit to leave to them."""


class RequestAdmission:
    """Admission of requests to the queue. `room()` returns True if a worker has a free slot;
    `waited` records every request's queue time.
    """

    def __init__(self, room: Callable[[], bool], waited: Histogram) -> None:
        self.active = False
        self.in_flight = 0
        self._room = room
        self._waited = waited
        self._config = AdmissionConfig()
        self._most = 0  # in-flight limit; 0: none
        self._here = NO_LIMIT  # part of it, and of the workers' slots, that other routers leave
        self._routers = 1  # that divide the rates; 1: not divided
        self._limits: dict[str, Key] = {}
        self._callers: dict[str, Caller] = {}
        self._queue = FairQueue()
        self._waiting: dict[Ticket, None] = {}
        self._held_bytes = 0
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._completion = _INITIAL_COMPLETION_TOKENS
        self._full = False  # no worker had room at the last check
        self._pumping = False
        self._pace = CallerPace()
        self._spells = 0
        self._spell = 0  # number of the current queueing period; 0: the queue is empty

    @property
    def depth(self) -> int:
        return self._queue.depth

    @property
    def limit(self) -> int:
        return self._config.queue.depth if self.active else 0

    # -- configuration

    def configure(
        self, config: AdmissionConfig, ring: KeyRing, keys: tuple[Key, ...] | None, capped: bool
    ) -> None:
        """Apply new limits, also to queued requests. `capped`: at least one worker has its own
        limit.
        """
        now = perf_counter()
        self._config = config
        self._limits = {key.id: key for key in keys or ()}
        self._most = config.endpoint.max_in_flight
        self._here = self._most or NO_LIMIT
        self._requests = resize_bucket(self._requests, config.endpoint.requests_per_minute)
        self._tokens = resize_bucket(self._tokens, config.endpoint.tokens_per_minute)
        of_keys = [effective_rates(key, config.per_key) for key in keys or ()]
        if keys is None:
            of_keys.append(config.per_key)
        self.active = capped or config.endpoint != _NO_RATES or any(r != _NO_RATES for r in of_keys)
        for caller in list(self._callers.values()):
            if caller.busy or caller.id in self._limits:
                self._limit(caller)
            else:
                del self._callers[caller.id]
        for ticket in list(self._waiting):
            if ticket.state == WAITING and not ring.holds(ticket.key):
                self._drop(ticket, Refusal("invalid_api_key", "This API key was revoked."))
        if self._routers > 1:
            self.divide(self._routers)
        self._shrink()
        self.tick(now)

    def _limit(self, caller: Caller) -> None:
        key = self._limits.get(caller.id)
        rates, weight = self._config.per_key, 1.0
        if key is not None:
            rates, weight = effective_rates(key, rates), key.limits.weight
        caller.limit(rates, weight, (self._requests, self._tokens))
        if self._routers > 1:
            self._divide_caller(caller, perf_counter())
        self._queue.wake(caller)

    # -- request path

    def _caller(self, key: Key) -> Caller:
        caller = self._callers.get(key.id)
        if caller is None:
            caller = self._callers[key.id] = Caller(key.id)
            self._limit(caller)
        return caller

    def check(self, key: Key, body_bytes: int, may_wait: bool) -> None:
        """Raise the Refusal that `enter` would raise for any body."""
        caller = self._caller(key)
        if caller.rates:
            caller.check_rates(0.0, perf_counter())
        if may_wait and not self._free(caller):
            self._check_queue(caller, body_bytes)

    def enter(
        self,
        request: AdmissionRequest,
        key: Key,
        facts: RequestFacts,
        body_bytes: int,
        may_wait: bool,
    ) -> bool:
        """Return True if the request may go now, False if it is queued. Raise Refusal."""
        now = perf_counter()
        caller = self._caller(key)
        tokens = facts.tokens + self._completion if facts.tokens else 0.0
        if caller.rates:
            caller.check_rates(tokens, now)
        ticket = Ticket(caller, key, request, tokens, body_bytes)
        goes = not may_wait or self._free(caller)
        if not goes:
            self._check_queue(caller, body_bytes)
        if caller.rates:
            caller.take(1, tokens, now)
        request.ticket = ticket
        if goes:
            self._queue.passed(ticket)
            caller.in_flight += 1
            self.in_flight += 1
            self._waited.observe(0.0)
        else:
            self._wait(ticket, now)
        return goes

    def _free(self, caller: Caller) -> bool:
        if caller.waiting or self._full or self._here <= self.in_flight:
            return False
        if caller.most and caller.here <= caller.in_flight:
            return False
        self._full = not self._room()
        return not self._full

    def _check_queue(self, caller: Caller, body_bytes: int) -> None:
        """Admit a key below its fair share of a full queue by dropping a request of the largest
        key.
        """
        queue = self._config.queue
        callers = sum(1 for _ in self._waiting_callers()) + (not caller.waiting)
        held = caller.held_bytes + body_bytes
        no_place = (
            self._queue.depth >= queue.depth and (len(caller.waiting) + 1) * callers > queue.depth
        )
        no_memory = (
            self._held_bytes + body_bytes > queue.body_bytes and held * callers > queue.body_bytes
        )
        if no_place or no_memory:
            raise self._queue_full(caller)

    def _wait(self, ticket: Ticket, now: float) -> None:
        ticket.state = WAITING
        ticket.since = now
        ticket.caller.held_bytes += ticket.body_bytes
        self._held_bytes += ticket.body_bytes
        self._waiting[ticket] = None
        self._begin_spell()
        self._queue.put(ticket)
        self._shrink()

    def _begin_spell(self) -> None:
        if not self._spell:
            self._spells += 1
            self._spell = self._spells

    def _shrink(self) -> None:
        """Drop requests of the keys with the largest backlog until the queue fits."""
        queue = self._config.queue
        while self._queue.depth > queue.depth:
            self._drop_newest_of(max(self._waiting_callers(), key=lambda c: len(c.waiting)))
        while self._held_bytes > queue.body_bytes:
            self._drop_newest_of(max(self._waiting_callers(), key=lambda c: c.held_bytes))

    def done(
        self, ticket: Ticket, tokens: float | None, work: float | None, completion: int
    ) -> None:
        """Release the slot of an ended request and start the next one.

        `tokens`: total tokens; `work`: computed tokens; None: only the estimate is available.
        `completion`: completion tokens reported by the engine, 0 if not reported.
        """
        now = perf_counter()
        caller = ticket.caller
        ticket.request.ticket = None  # break the reference cycle
        if ticket.state == WAITING:
            self._queue.remove(ticket)
            self._left(ticket)
        else:
            caller.in_flight -= 1
            self.in_flight -= 1
            if self._spell:
                caller.pace.ended(now, self._spell)
                self._pace.ended(now, self._spell)
                if not self._queue.depth and (self._config.queue.depth or not self.in_flight):
                    self._spell = 0
            if work is not None:
                self._queue.correct(caller, work - ticket.cost)
            if caller.waiting:
                self._queue.wake(caller)
        if tokens is not None and caller.rates:
            caller.take(0, tokens - ticket.charged, now)
        if completion:
            self._completion += (completion - self._completion) * _COMPLETION_WEIGHT
        if not caller.busy and caller.id not in self._limits and caller.id:
            self._callers.pop(caller.id, None)
        self._full = False
        if self._queue.depth:
            self.pump()

    def pump(self) -> None:
        if self._pumping:  # a request that fails on start re-enters through `done`
            return
        self._pumping = True
        self._full = False
        try:
            while self._queue.depth:
                if self._here <= self.in_flight:
                    break
                if not self._room():
                    self._full = True
                    break
                ticket = cast(Ticket | None, self._queue.pop(_is_ready))
                if ticket is None:
                    break
                waited_s = self._left(ticket)
                ticket.state = RUNNING
                ticket.caller.in_flight += 1
                self.in_flight += 1
                ticket.request.go(waited_s)
        finally:
            self._pumping = False

    def _left(self, ticket: Ticket) -> float:
        """Remove a request from the queue; return its wait in seconds."""
        del self._waiting[ticket]
        ticket.caller.held_bytes -= ticket.body_bytes
        self._held_bytes -= ticket.body_bytes
        waited = perf_counter() - ticket.since
        self._waited.observe(waited)
        return waited

    def tick(self, now: float) -> None:
        """Reject requests over the wait limit; detect room that opened without a request's end."""
        timeout_s = self._config.queue.timeout_s
        message = f"No slot was free for this request within {timeout_s:g} seconds."
        for ticket in list(self._waiting):
            if now - ticket.since < timeout_s:
                break
            if ticket.state == WAITING:  # the end of an earlier one may have started it
                retry = self._expected_wait_s(ticket.caller)
                self._drop(ticket, Refusal("queue_timeout", message, retry_after_s=retry))
        self._full = False
        if self._queue.depth:
            self.pump()

    # -- other routers

    def buckets(self) -> Iterator[tuple[str, Bucket]]:
        """Yield the token buckets, each with a name that is the same at all routers."""
        own = [("endpoint", self._requests, self._tokens)]
        own += [(f"key:{c.id}", c.requests, c.tokens) for c in self._callers.values() if c.rates]
        for name, requests, tokens in own:
            if requests is not None:
                yield f"{name}:requests", requests
            if tokens is not None:
                yield f"{name}:tokens", tokens

    def divide(self, routers: int) -> None:
        """Allow this router one part of all limits, as the store is away; 1: undo."""
        now = perf_counter()
        self._routers = routers
        for bucket in (self._requests, self._tokens):
            if bucket is not None:
                bucket.divide(routers, now)
        self._here = -(-self._most // routers) or NO_LIMIT
        for caller in self._callers.values():
            self._divide_caller(caller, now)

    def _divide_caller(self, caller: Caller, now: float) -> None:
        for bucket in (caller.requests, caller.tokens):
            if bucket is not None:
                bucket.divide(self._routers, now)
        caller.here = -(-caller.most // self._routers)

    def leave_room(self, peers: PeerDemand, slots: int) -> None:
        """Leave peers what they use, and up to an equal share of what they wait for.

        `slots`: of all workers; 0: unlimited.
        """
        if self._routers > 1:
            return  # the store is away
        most = min(self._most or NO_LIMIT, slots or NO_LIMIT)
        claimed = peers.claim("", most)
        self._here = most - claimed if claimed else self._most or NO_LIMIT
        for caller in self._callers.values():
            if caller.most and caller.id:
                caller.here = caller.most - peers.claim(caller.id, caller.most)

    def callers(self) -> Iterator[tuple[str, int, int]]:
        """Yield the in-flight and queued requests of all ("") and of each limited key."""
        if self.in_flight or self._queue.depth:
            yield "", self.in_flight, self._queue.depth
        for caller in self._callers.values():
            if caller.most and caller.id and caller.busy:
                yield caller.id, caller.in_flight, len(caller.waiting)

    # -- rejection

    def _drop(self, ticket: Ticket, refusal: Refusal) -> None:
        ticket.request.refuse(refusal)

    def _drop_newest_of(self, caller: Caller) -> None:
        newest = cast(Ticket, next(reversed(caller.waiting)))
        self._drop(newest, self._queue_full(caller))

    def _queue_full(self, caller: Caller) -> Refusal:
        self._begin_spell()  # also without a queue: completion rates are needed for Retry-After
        message = "The queue is full."
        if not self._config.queue.depth:
            message = "The limit of concurrent requests is reached."
        return Refusal("queue_full", message, retry_after_s=self._expected_wait_s(caller))

    def _expected_wait_s(self, caller: Caller) -> int:
        """Return the seconds to serve the caller's backlog at its completion rate."""
        now = perf_counter()
        turn_s = caller.pace.turn_s(now, self._spell)
        if not turn_s:
            turn_s = self._pace.turn_s(now, self._spell) * max(
                sum(1 for _ in self._waiting_callers()), 1
            )
        wait_s = turn_s * max(len(caller.waiting), 1)
        # No request has ended yet: by the wait limit every queued request has started or failed.
        wait_s = wait_s or self._config.queue.timeout_s
        return min(max(math.ceil(wait_s), 1), _LONGEST_RETRY_S)

    def _waiting_callers(self) -> Iterator[Caller]:
        return (caller for caller in self._callers.values() if caller.waiting)

    # -- status

    def show(self) -> dict[str, object]:
        now = perf_counter()
        return {
            "active": self.active,
            "in_flight": self.in_flight,
            "waiting": self._queue.depth,
            "waiting_limit": self.limit,
            "waiting_bytes": self._held_bytes,
            "seconds_between_ends": round(self._pace.turn_s(now, self._spell), 6),
            "expected_completion_tokens": round(self._completion),
            "requests_left": remaining_tokens(self._requests, now),
            "tokens_left": remaining_tokens(self._tokens, now),
            "keys": [caller.show(now) for caller in self._callers.values()],
        }
