"""Per-key limits, in-flight counts and completion rates."""

from __future__ import annotations

import math
from typing import Protocol

from routing.engine.access.fair_queue import Flow, QueuedItem
from routing.engine.config import Key, Rates
from routing.engine.errors import Refusal

_MINUTE_S = 60.0
_ROUNDING = 1e-6
_RESERVE = 1 / 4  # share of a rate left to other routers between two settlements
_SETTLED_S = 0.01


class Bucket:
    """Token bucket that holds a minute's worth.

    Shared with other routers it is charged here at once and settled with the store later (`unsent`,
    `settle`); while there is no store, `divide` gives each router its share.
    """

    __slots__ = ("_allowed", "_each_s", "_full_at", "_routers", "per_minute", "unsent")

    def __init__(self, per_minute: int) -> None:
        self._full_at = 0.0
        self._allowed = math.inf  # until the next settlement
        self._routers = 1
        self.unsent = 0.0  # taken since the last settlement
        self.resize(per_minute)

    def resize(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._each_s = _MINUTE_S * self._routers / per_minute

    def divide(self, routers: int, now: float) -> None:
        """Allow this router one part of the rate."""
        # Tokens refilled in the meantime are not charged again.
        self.unsent = min(self.unsent, max(self._full_at - now, 0.0) / self._each_s)
        if routers != self._routers:
            self._routers = routers
            self._allowed = math.inf
            self.resize(self.per_minute)

    @property
    def unsent_s(self) -> float:
        """Return `unsent` as the seconds until it is refilled."""
        return self.unsent * self._each_s

    @property
    def tight(self) -> bool:
        """Return True if the rest may be used up before the usual next settlement."""
        return self._allowed < self.per_minute * _RESERVE

    def settle(self, used_s: float, sent_s: float, now: float, routers: int) -> None:
        """Take over the store's level, in seconds until the bucket is full; `sent_s`: the charge it
        includes.

        Until the next settlement `routers` may each use all but a reserve, their part of the level
        once half of it is used, and at least one token.
        """
        self.unsent -= sent_s / self._each_s
        if abs(self.unsent) < _ROUNDING:
            self.unsent = 0.0
        self._full_at = now + used_s + self.unsent_s
        level = self.level(now)
        reserve = self.per_minute * _RESERVE
        part = level - reserve if level > 2 * reserve else level / routers
        self._allowed = math.inf if routers == 1 else max(math.floor(part), min(level // 1, 1))

    def level(self, now: float) -> float:
        """Return the current level; negative: overdrawn."""
        return (_MINUTE_S - max(self._full_at - now, 0.0)) / self._each_s

    def full_s(self, now: float) -> float:
        """Return the seconds until the bucket is full."""
        return max(self._full_at - now, 0.0)

    def wait_s(self, cost: float, now: float) -> float:
        """Return the seconds until `cost` is available; <= 0: now."""
        if self._allowed <= 0:
            return max(self._full_at - now - _MINUTE_S + cost * self._each_s, _SETTLED_S)
        spare = _MINUTE_S - cost * self._each_s
        return self._full_at - now - (spare if spare > 0 else 0.0)

    def take(self, cost: float, now: float) -> None:
        """Take `cost` unconditionally (see `wait_s`); a negative cost is a refund."""
        self.unsent += cost
        self._allowed -= cost
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

    __slots__ = (
        "held_bytes",
        "here",
        "id",
        "in_flight",
        "most",
        "pace",
        "rates",
        "requests",
        "tokens",
    )

    def __init__(self, key_id: str) -> None:
        super().__init__()
        self.id = key_id
        self.in_flight = 0
        self.most = 0  # in-flight limit; 0: none
        self.here = 0  # part of it that other routers leave
        self.held_bytes = 0
        self.pace = CallerPace()
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.rates: tuple[RateLimit, ...] = ()

    @property
    def busy(self) -> bool:
        return bool(self.in_flight or self.waiting)

    def ready(self) -> bool:
        return not self.most or self.in_flight < self.here

    def limit(self, own: Rates, weight: float, shared: tuple[Bucket | None, Bucket | None]) -> None:
        """Replace the limits; `shared`: the endpoint's request and token buckets."""
        self.weight = weight
        if self.most != own.max_in_flight:
            self.most = self.here = own.max_in_flight
        self.requests = resize_bucket(self.requests, own.requests_per_minute)
        self.tokens = resize_bucket(self.tokens, own.tokens_per_minute)
        all_rates = (
            (self.requests, False, "key_rate_limit_requests"),
            (self.tokens, True, "key_rate_limit_tokens"),
            (shared[0], False, "rate_limit_requests"),
            (shared[1], True, "rate_limit_tokens"),
        )
        self.rates = tuple(
            (rate, of_tokens, code) for rate, of_tokens, code in all_rates if rate is not None
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
        refusal = Refusal(code, message, retry_after_s=wait)
        refusal.lines = self.rate_lines(now)
        raise refusal

    def rate_lines(self, now: float) -> bytes:
        """Return OpenAI's header lines of the tightest request and token rate.

        https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers
        """
        lines = []
        for of_tokens, what in ((False, b"requests"), (True, b"tokens")):
            buckets = [rate[0] for rate in self.rates if rate[1] is of_tokens]
            if buckets:
                bucket = min(buckets, key=lambda each: each.level(now))
                left = max(math.floor(bucket.level(now)), 0)
                lines.append(
                    b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\n"
                    b"x-ratelimit-reset-%b: %gs\r\n"
                    % (what, bucket.per_minute, what, left, what, round(bucket.full_s(now), 3))
                )
        return b"".join(lines)

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
