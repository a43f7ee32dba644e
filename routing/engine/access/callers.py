"""Per-key limits, in-flight counts and completion rates."""

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
        self.per_minute = per_minute
        self._each_s = _MINUTE_S / per_minute

    def level(self, now: float) -> float:
        """Return the current level; negative: overdrawn."""
        return self.per_minute - max(self._full_at - now, 0.0) / self._each_s

    def wait_s(self, cost: float, now: float) -> float:
        """Return the seconds until `cost` is available; <= 0: now."""
        spare = _MINUTE_S - cost * self._each_s
        return self._full_at - now - (spare if spare > 0 else 0.0)

    def take(self, cost: float, now: float) -> None:
        """Take `cost` unconditionally (see `wait_s`); a negative cost is a refund."""
        full_at = self._full_at
        self._full_at = (full_at if full_at > now else now) + cost * self._each_s


WAITING, RUNNING = range(2)


class AdmissionRequest(Protocol):
    ticket: Ticket | None

    def go(self, waited_s: float) -> None: ...

    def refuse(self, refusal: Refusal) -> None: ...


class CallerPace:
    """Mean interval between completions while requests are queued.

    `spell` numbers the queueing periods; time between two periods is not counted.
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
        """Return the expected interval in seconds; 0: unknown. An overdue interval counts as
        elapsed.
        """
        return max(self._mean_s, now - self._last) if spell == self._spell else self._mean_s


RateLimit = tuple[Bucket, bool, str]  # token bucket, True if it counts tokens, error code


class Caller(Flow):
    """Usage of one key; one instance for all callers where no keys are configured."""

    __slots__ = ("held_bytes", "id", "in_flight", "most", "pace", "rates", "requests", "tokens")

    def __init__(self, key_id: str) -> None:
        super().__init__()
        self.id = key_id
        self.in_flight = 0
        self.most = 0  # in-flight limit; 0: none
        self.held_bytes = 0
        self.pace = CallerPace()
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.rates: tuple[RateLimit, ...] = ()

    @property
    def busy(self) -> bool:
        return bool(self.in_flight or self.waiting)

    def ready(self) -> bool:
        return not self.most or self.in_flight < self.most

    def limit(self, own: Rates, weight: float, shared: tuple[Bucket | None, Bucket | None]) -> None:
        """Replace the limits; `shared`: the endpoint's request and token buckets."""
        self.weight = weight
        self.most = own.max_in_flight
        self.requests = resize_bucket(self.requests, own.requests_per_minute)
        self.tokens = resize_bucket(self.tokens, own.tokens_per_minute)
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
        """Raise Refusal, with the time until all buckets admit the request."""
        longest = 0.0
        worst: RateLimit | None = None
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
            "requests_left": remaining_tokens(self.requests, now),
            "tokens_left": remaining_tokens(self.tokens, now),
        }


class Ticket(QueuedItem):
    """One admitted or queued request. `charged`: tokens taken from the buckets."""

    __slots__ = ("body_bytes", "caller", "charged", "key", "request", "since", "state")

    def __init__(
        self, caller: Caller, key: Key, request: AdmissionRequest, tokens: float, body_bytes: int
    ) -> None:
        self.flow = self.caller = caller  # hot path: no super().__init__
        self.cost = tokens
        self.key = key
        self.request = request
        self.charged = tokens
        self.body_bytes = body_bytes
        self.since = 0.0
        self.state = RUNNING


def resize_bucket(old: Bucket | None, per_minute: int) -> Bucket | None:
    if not per_minute:
        return None
    if old is None:
        return Bucket(per_minute)
    if old.per_minute != per_minute:
        old.resize(per_minute)
    return old


def remaining_tokens(of: Bucket | None, now: float) -> int | None:
    return None if of is None else math.floor(of.level(now))


def effective_rates(key: Key, default: Rates) -> Rates:
    """Return the key's own limits, falling back to `default` per field."""
    own = key.limits
    return Rates(
        default.max_in_flight if own.max_in_flight is None else own.max_in_flight,
        default.requests_per_minute if own.requests_per_minute is None else own.requests_per_minute,
        default.tokens_per_minute if own.tokens_per_minute is None else own.tokens_per_minute,
    )
