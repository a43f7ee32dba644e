"""Who may go now, who waits, and who is told to come back later.

Three kinds of limits, all optional and all in force from the moment they are configured:
  - *rates* (requests and tokens a minute, of the endpoint and of each key) are checked as a
    request arrives; over one, it is refused at once and told when it would pass;
  - *slots* (requests in flight, of the endpoint, of each key and of each worker): without one a
    request waits here, where it can still go to whichever worker is best when its turn comes, and
    not in a worker's queue, where that is settled;
  - *the queue's own* (requests, bytes held, time): over one, somebody is refused.

Tokens are charged as a request is taken in, by estimate: its prompt, and an answer as long as
answers were lately. The engine's own count corrects the charge at the end; a request which never
reached a worker gives its tokens back.

Keys take turns by fair queueing in tokens of work (see fairqueue.py), where work is what was
computed: cached prompt tokens are not. A full queue drops the newest request of the key which has
most in it, so a flood keeps nobody else out. `Retry-After` is the bucket's own arithmetic for a
rate, and for the queue how long what the key has waiting takes at the pace its requests end.

Promises that a caller who hangs up leaves at once, that a slot is given on as soon as it is free,
and that a router without limits never calls in here. Must not know HTTP, workers or policies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import cast

from console.processkit.metrics import Histogram
from routing.engine.access.callers import (
    RUNNING,
    WAITING,
    AdmissionRequest,
    Bucket,
    Caller,
    CallerPace,
    Ticket,
    bucket,
    left,
    rates_of,
)
from routing.engine.access.fair_queue import FairQueue, Flow
from routing.engine.access.keys import KeyRing
from routing.engine.config import AdmissionConfig, Key, Rates
from routing.engine.errors import Refusal
from routing.engine.policies.base import RequestFacts

_FIRST_COMPLETION = 256.0  # tokens expected of an answer before any was seen
_LEARN = 1 / 32  # how fast the expectation follows
_LONGEST_RETRY_S = 3600
_NONE = Rates()


def _ready(flow: Flow) -> bool:
    return cast(Caller, flow).ready()


class RequestAdmission:
    """`room()`: can some worker take one more? `waited`: gets every request's time in the queue."""

    def __init__(self, room: Callable[[], bool], waited: Histogram) -> None:
        self.active = False
        self.in_flight = 0
        self._room = room
        self._waited = waited
        self._config = AdmissionConfig()
        self._most = 0  # in flight; 0: no limit
        self._limits: dict[str, Key] = {}
        self._callers: dict[str, Caller] = {}
        self._queue = FairQueue()
        self._waiting: dict[Ticket, None] = {}  # in the order in which they came
        self._held_bytes = 0
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._completion = _FIRST_COMPLETION
        self._full = False  # no worker had room when last asked
        self._pumping = False
        self._pace = CallerPace()
        self._spells = 0
        self._spell = 0  # the number of this time of waiting; 0: nobody waits

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
        """Take over limits, also for what waits; `capped`: some worker has a limit of its own."""
        now = perf_counter()
        self._config = config
        self._limits = {key.id: key for key in keys or ()}
        self._most = config.endpoint.max_in_flight
        self._requests = bucket(self._requests, config.endpoint.requests_per_minute)
        self._tokens = bucket(self._tokens, config.endpoint.tokens_per_minute)
        of_keys = [rates_of(key, config.per_key) for key in keys or ()]
        if keys is None:
            of_keys.append(config.per_key)
        self.active = capped or config.endpoint != _NONE or any(r != _NONE for r in of_keys)
        for caller in list(self._callers.values()):
            if caller.busy or caller.id in self._limits:
                self._limit(caller)
            else:
                del self._callers[caller.id]
        for ticket in list(self._waiting):
            if ticket.state == WAITING and not ring.holds(ticket.key):
                self._drop(ticket, Refusal("invalid_api_key", "This API key was withdrawn."))
        self._shrink()
        self.tick(now)

    def _limit(self, caller: Caller) -> None:
        key = self._limits.get(caller.id)
        rates, weight = self._config.per_key, 1.0
        if key is not None:
            rates, weight = rates_of(key, rates), key.limits.weight
        caller.limit(rates, weight, (self._requests, self._tokens))
        self._queue.wake(caller)

    # -- a request's way

    def _caller(self, key: Key) -> Caller:
        caller = self._callers.get(key.id)
        if caller is None:
            caller = self._callers[key.id] = Caller(key.id)
            self._limit(caller)
        return caller

    def check(self, key: Key, body_bytes: int, may_wait: bool) -> None:
        """Raise the Refusal which `enter` would raise whatever is in the body."""
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
        """True: it may go now. False: it waits for its turn. Raises Refusal."""
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
        """A slot is there, and nobody who could take it is waiting: see `pump`."""
        if caller.waiting or self._full or 0 < self._most <= self.in_flight:
            return False
        if 0 < caller.most <= caller.in_flight:
            return False
        self._full = not self._room()
        return not self._full

    def _check_queue(self, caller: Caller, body_bytes: int) -> None:
        """Whoever has less than an equal share of a full queue gets in, and somebody with more
        makes room: one caller's flood cannot fill it for all."""
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
        """Keep the queue within its limits, at the cost of whoever has most in it."""
        queue = self._config.queue
        while self._queue.depth > queue.depth:
            self._drop_newest_of(max(self._waiting_callers(), key=lambda c: len(c.waiting)))
        while self._held_bytes > queue.body_bytes:
            self._drop_newest_of(max(self._waiting_callers(), key=lambda c: c.held_bytes))

    def done(
        self, ticket: Ticket, tokens: float | None, work: float | None, completion: int
    ) -> None:
        """The request has ended, however. Gives its slot to the next.

        `tokens` it took in all, `work` that was computed; None: only the estimate is known.
        `completion`: its answer's tokens as the engine counted them, 0 for not counted.
        """
        now = perf_counter()
        caller = ticket.caller
        ticket.request.ticket = None  # else the two would wait for the collector together
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
            self._completion += (completion - self._completion) * _LEARN
        if not caller.busy and caller.id not in self._limits and caller.id:
            self._callers.pop(caller.id, None)
        self._full = False
        if self._queue.depth:
            self.pump()

    def pump(self) -> None:
        """Give out what slots are free; afterwards none is, or nobody who waits may have one."""
        if self._pumping:  # a request which fails as it goes ends in `done`
            return
        self._pumping = True
        self._full = False
        try:
            while self._queue.depth:
                if 0 < self._most <= self.in_flight:
                    break
                if not self._room():
                    self._full = True
                    break
                ticket = cast(Ticket | None, self._queue.pop(_ready))
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
        """It waits no longer; the seconds it did."""
        del self._waiting[ticket]
        ticket.caller.held_bytes -= ticket.body_bytes
        self._held_bytes -= ticket.body_bytes
        waited = perf_counter() - ticket.since
        self._waited.observe(waited)
        return waited

    def tick(self, now: float) -> None:
        """Refuse who waited too long; look for room which opened without a request's end."""
        timeout_s = self._config.queue.timeout_s
        message = f"No slot was free for this request within {timeout_s:g} seconds."
        for ticket in list(self._waiting):
            if now - ticket.since < timeout_s:
                break
            if ticket.state == WAITING:  # the end of one before it may have given it its turn
                retry = self._expected_wait_s(ticket.caller)
                self._drop(ticket, Refusal("queue_timeout", message, retry_after_s=retry))
        self._full = False
        if self._queue.depth:
            self.pump()

    # -- refusing

    def _drop(self, ticket: Ticket, refusal: Refusal) -> None:
        ticket.request.refuse(refusal)  # its end comes back to `done`

    def _drop_newest_of(self, caller: Caller) -> None:
        newest = cast(Ticket, next(reversed(caller.waiting)))
        self._drop(newest, self._queue_full(caller))

    def _queue_full(self, caller: Caller) -> Refusal:
        self._begin_spell()  # also where nobody can wait: ends are wanted
        message = "Too many requests are waiting for a slot."
        if not self._config.queue.depth:
            message = "As many requests as are allowed at a time are running."
        return Refusal("queue_full", message, retry_after_s=self._expected_wait_s(caller))

    def _expected_wait_s(self, caller: Caller) -> int:
        """Until what the caller has waiting, as it is now, has gone at its present pace."""
        now = perf_counter()
        turn_s = caller.pace.turn_s(now, self._spell)
        if not turn_s:
            turn_s = self._pace.turn_s(now, self._spell) * max(
                sum(1 for _ in self._waiting_callers()), 1
            )
        wait_s = turn_s * max(len(caller.waiting), 1)
        # Nothing has ended yet: by then whoever waits now has gone or was refused.
        wait_s = wait_s or self._config.queue.timeout_s
        return min(max(math.ceil(wait_s), 1), _LONGEST_RETRY_S)

    def _waiting_callers(self) -> Iterator[Caller]:
        return (caller for caller in self._callers.values() if caller.waiting)

    # -- shown

    def show(self) -> dict[str, object]:
        """For the admin port."""
        now = perf_counter()
        return {
            "active": self.active,
            "in_flight": self.in_flight,
            "waiting": self._queue.depth,
            "waiting_limit": self.limit,
            "waiting_bytes": self._held_bytes,
            "seconds_between_ends": round(self._pace.turn_s(now, self._spell), 6),
            "expected_completion_tokens": round(self._completion),
            "requests_left": left(self._requests, now),
            "tokens_left": left(self._tokens, now),
            "keys": [caller.show(now) for caller in self._callers.values()],
        }
