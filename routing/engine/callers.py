"""One caller's use of an endpoint: its limits, what it has running, how fast its requests end.

Promises that limits can change while requests run and wait. Must not know whose turn it is.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, cast

from routing.engine.buckets import Bucket
from routing.engine.config import Key, Rates
from routing.engine.errors import Refusal
from routing.engine.fairqueue import Flow, Item

WAITING, RUNNING = range(2)


class Request(Protocol):
    """What is admitted: an exchange, as far as admission may know it."""

    ticket: Ticket | None

    def go(self, waited_s: float) -> None:
        """Its turn has come."""

    def refuse(self, refusal: Refusal) -> None: ...


class Pace:
    """How long a turn takes: the mean time between ends, while there was always a next one."""

    __slots__ = ("_last", "_mean_s")

    def __init__(self) -> None:
        self._mean_s = 0.0
        self._last = 0.0  # 0: nothing was left to do

    def ended(self, now: float, more: bool) -> None:
        if self._last:
            took = now - self._last
            self._mean_s += (took - self._mean_s) / 8 if self._mean_s else took
        self._last = now if more else 0.0

    def turn_s(self, now: float) -> float:
        """0: not known. A turn which takes longer than usual counts as it is."""
        return max(self._mean_s, now - self._last) if self._last else self._mean_s


class Rate(NamedTuple):
    """A bucket a request must pass, and the code it is refused with."""

    bucket: Bucket
    of_tokens: bool
    code: str


class Caller(Flow):
    """One key's use of the endpoint; without keys there is one for all."""

    __slots__ = ("held_bytes", "id", "in_flight", "most", "pace", "rates", "requests", "tokens")

    def __init__(self, key_id: str) -> None:
        super().__init__()
        self.id = key_id
        self.in_flight = 0
        self.most = 0  # in flight; 0: no limit
        self.held_bytes = 0  # of what it has waiting
        self.pace = Pace()
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.rates: tuple[Rate, ...] = ()

    @property
    def busy(self) -> bool:
        return bool(self.in_flight or self.waiting)

    def ready(self) -> bool:
        return not self.most or self.in_flight < self.most

    def limit(
        self, own: Rates, weight: float, shared: tuple[Bucket | None, Bucket | None], now: float
    ) -> None:
        """Other limits from now on; `shared` are the endpoint's buckets of requests and tokens."""
        self.weight = weight
        self.most = own.max_in_flight
        self.requests = bucket(self.requests, own.requests_per_minute, now)
        self.tokens = bucket(self.tokens, own.tokens_per_minute, now)
        all_rates = (
            (self.requests, False, "key_rate_limit_requests"),
            (self.tokens, True, "key_rate_limit_tokens"),
            (shared[0], False, "rate_limit_requests"),
            (shared[1], True, "rate_limit_tokens"),
        )
        self.rates = tuple(
            Rate(found, of_tokens, code)
            for found, of_tokens, code in all_rates
            if found is not None
        )

    def check_rates(self, tokens: float, now: float) -> None:
        """Raises Refusal, with the time after which all of them would pass."""
        longest = 0.0
        worst: Rate | None = None
        for rate in self.rates:
            wait_s = rate.bucket.wait_s(tokens if rate.of_tokens else 1, now)
            if wait_s > longest:
                longest, worst = wait_s, rate
        if worst is None:
            return
        whose = "This API key" if worst.code.startswith("key") else "This endpoint"
        what = "tokens" if worst.of_tokens else "requests"
        message = (
            f"{whose} may use {worst.bucket.per_minute} {what} a minute, and has. "
            f"Try again in {math.ceil(longest)} s."
        )
        raise Refusal(worst.code, message, retry_after_s=math.ceil(longest))

    def take(self, requests: int, tokens: float) -> None:
        for rate in self.rates:
            rate.bucket.take(tokens if rate.of_tokens else requests)

    def show(self, now: float) -> dict[str, object]:
        return {
            "id": self.id,
            "in_flight": self.in_flight,
            "waiting": len(self.waiting),
            "weight": self.weight,
            "requests_left": left(self.requests, now),
            "tokens_left": left(self.tokens, now),
        }


class Ticket(Item):
    """One request's place: waiting, then running. `charged`: tokens taken for it."""

    __slots__ = ("body_bytes", "charged", "key", "request", "since", "state")

    def __init__(
        self, caller: Caller, key: Key, request: Request, tokens: float, body_bytes: int
    ) -> None:
        super().__init__(caller, tokens)
        self.key = key
        self.request = request
        self.charged = tokens
        self.body_bytes = body_bytes
        self.since = 0.0  # when it began to wait
        self.state = RUNNING

    @property
    def caller(self) -> Caller:
        return cast(Caller, self.flow)


def bucket(old: Bucket | None, per_minute: int, now: float) -> Bucket | None:
    """The bucket for this rate; an old one keeps what was used of it."""
    if not per_minute:
        return None
    if old is None:
        return Bucket(per_minute, now)
    if old.per_minute != per_minute:
        old.resize(per_minute, now)
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
