"""One caller's use of an endpoint: its limits, what it has running, how fast its requests end.

Promises that limits can change while requests run and wait. Must not know whose turn it is.
"""

from __future__ import annotations

import math
from typing import Protocol

from routing.engine.access.fair_queue import Flow, QueuedItem
from routing.engine.config import Key, Rates
from routing.engine.errors import Refusal

_MINUTE_S = 60.0


class Bucket:
    __slots__ = ("_each_s", "_full_at", "per_minute")

    def __init__(self, per_minute: int) -> None:
        self._full_at = 0.0
        self.resize(per_minute)

    def resize(self, per_minute: int) -> None:
        """Another rate from now on."""
        self.per_minute = per_minute
        self._each_s = _MINUTE_S / per_minute

    def level(self, now: float) -> float:
        """What is left now; below zero: a debt."""
        return self.per_minute - max(self._full_at - now, 0.0) / self._each_s

    def wait_s(self, cost: float, now: float) -> float:
        """Seconds until `cost` may be taken; not above 0: now."""
        spare = _MINUTE_S - cost * self._each_s
        return self._full_at - now - (spare if spare > 0 else 0.0)

    def take(self, cost: float, now: float) -> None:
        """Whether it is there or not: ask `wait_s` before. A negative cost is given back."""
        full_at = self._full_at
        self._full_at = (full_at if full_at > now else now) + cost * self._each_s


WAITING, RUNNING = range(2)


class AdmissionRequest(Protocol):
    """What is admitted: an exchange, as far as admission may know it."""

    ticket: Ticket | None

    def go(self, waited_s: float) -> None:
        """Its turn has come."""

    def refuse(self, refusal: Refusal) -> None: ...


class CallerPace:
    """How long a turn takes: the mean time between ends while somebody waits for them.

    `spell` numbers the times of waiting: what lies between two of them is no turn.
    """

    __slots__ = ("_last", "_mean_s", "_spell")

    def __init__(self) -> None:
        self._mean_s = 0.0
        self._last = 0.0
        self._spell = -1

    def ended(self, now: float, spell: int) -> None:
        if spell == self._spell:
            took = now - self._last
            self._mean_s += (took - self._mean_s) / 8 if self._mean_s else took
        self._last = now
        self._spell = spell

    def turn_s(self, now: float, spell: int) -> float:
        """0: not known. A turn which takes longer than usual counts as it is."""
        return max(self._mean_s, now - self._last) if spell == self._spell else self._mean_s


Rate = tuple[Bucket, bool, str]  # a bucket to pass; does it count tokens; the code of refusal


class Caller(Flow):
    """One key's use of the endpoint; without keys there is one for all."""

    __slots__ = ("held_bytes", "id", "in_flight", "most", "pace", "rates", "requests", "tokens")

    def __init__(self, key_id: str) -> None:
        super().__init__()
        self.id = key_id
        self.in_flight = 0
        self.most = 0  # in flight; 0: no limit
        self.held_bytes = 0  # of what it has waiting
        self.pace = CallerPace()
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.rates: tuple[Rate, ...] = ()

    @property
    def busy(self) -> bool:
        return bool(self.in_flight or self.waiting)

    def ready(self) -> bool:
        return not self.most or self.in_flight < self.most

    def limit(self, own: Rates, weight: float, shared: tuple[Bucket | None, Bucket | None]) -> None:
        """Other limits from now on; `shared` are the endpoint's buckets of requests and tokens."""
        self.weight = weight
        self.most = own.max_in_flight
        self.requests = bucket(self.requests, own.requests_per_minute)
        self.tokens = bucket(self.tokens, own.tokens_per_minute)
        all_rates = (
            (self.requests, False, "key_rate_limit_requests"),
            (self.tokens, True, "key_rate_limit_tokens"),
            (shared[0], False, "rate_limit_requests"),
            (shared[1], True, "rate_limit_tokens"),
        )
        self.rates = tuple(
            (found, of_tokens, code) for found, of_tokens, code in all_rates if found is not None
        )

    def check_rates(self, tokens: float, now: float) -> None:
        """Raises Refusal, with the time after which all of them would pass."""
        longest = 0.0
        worst: Rate | None = None
        for rate in self.rates:
            wait_s = rate[0].wait_s(tokens if rate[1] else 1, now)
            if wait_s > longest:
                longest, worst = wait_s, rate
        if worst is None:
            return
        limit, of_tokens, code = worst
        whose = "This API key" if code.startswith("key") else "This endpoint"
        what = "tokens" if of_tokens else "requests"
        wait = math.ceil(longest)
        message = (
            f"{whose} may use {limit.per_minute} {what} a minute, and has. Try again in {wait} s."
        )
        raise Refusal(code, message, retry_after_s=wait)

    def take(self, requests: int, tokens: float, now: float) -> None:
        for limit, of_tokens, _ in self.rates:
            limit.take(tokens if of_tokens else requests, now)

    def show(self, now: float) -> dict[str, object]:
        return {
            "id": self.id,
            "in_flight": self.in_flight,
            "waiting": len(self.waiting),
            "weight": self.weight,
            "requests_left": left(self.requests, now),
            "tokens_left": left(self.tokens, now),
        }


class Ticket(QueuedItem):
    """One request's place: waiting, then running. `charged`: tokens taken for it."""

    __slots__ = ("body_bytes", "caller", "charged", "key", "request", "since", "state")

    def __init__(
        self, caller: Caller, key: Key, request: AdmissionRequest, tokens: float, body_bytes: int
    ) -> None:
        self.flow = self.caller = caller  # not by super(): this is made for every request
        self.cost = tokens
        self.key = key
        self.request = request
        self.charged = tokens
        self.body_bytes = body_bytes
        self.since = 0.0  # when it began to wait
        self.state = RUNNING


def bucket(old: Bucket | None, per_minute: int) -> Bucket | None:
    """The bucket for this rate; an old one keeps what was used of it."""
    if not per_minute:
        return None
    if old is None:
        return Bucket(per_minute)
    if old.per_minute != per_minute:
        old.resize(per_minute)
    return old


def left(of: Bucket | None, now: float) -> int | None:
    return None if of is None else math.floor(of.level(now))


def rates_of(key: Key, default: Rates) -> Rates:
    """A key's own limits, and the default where it has none."""
    own = key.limits
    return Rates(
        default.max_in_flight if own.max_in_flight is None else own.max_in_flight,
        default.requests_per_minute if own.requests_per_minute is None else own.requests_per_minute,
        default.tokens_per_minute if own.tokens_per_minute is None else own.tokens_per_minute,
    )
