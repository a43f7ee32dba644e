"""Computed prompt tokens by cause: since the start, and per hour by API key and prompt prefix."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from routing.engine.misses.layouts import EarlyChange, HourLayouts

if TYPE_CHECKING:
    from routing.engine.observe.decisions import Decision

HOURS_KEPT: Final = 25  # the current one and a day
PAIRS_KEPT: Final = 1000  # of API key and prompt prefix, per hour; others count as OTHER
OTHER: Final = "other"

Pair = tuple[str, int]
_OTHER: Pair = (OTHER, -1)


class _PairSums:
    __slots__ = ("cached", "causes", "prompt", "requests")

    def __init__(self) -> None:
        self.requests = self.prompt = self.cached = 0
        self.causes: dict[str, int] = {}


class _HourSums:
    __slots__ = ("layouts", "number", "pairs", "unreported")

    def __init__(self, number: int) -> None:
        self.number = number
        self.unreported = 0
        self.pairs: dict[Pair, _PairSums] = {}
        self.layouts = HourLayouts()

    def pair(self, pair: Pair) -> _PairSums:
        name = pair if len(self.pairs) < PAIRS_KEPT else _OTHER
        pair_sums = self.pairs.get(name)
        if pair_sums is None:
            pair_sums = self.pairs[name] = _PairSums()
        return pair_sums

    def show(self, digest: Callable[[int], str]) -> dict[str, Any]:
        keys: dict[str, dict[str, int]] = {}
        prefixes: dict[str, dict[str, int]] = {}
        causes: dict[str, int] = {}
        requests: dict[str, int] = {}
        for (key, prefix), sums in self.pairs.items():
            name = OTHER if prefix == -1 else digest(prefix) if prefix else ""
            requests[name] = requests.get(name, 0) + sums.requests
            for into in (causes, keys.setdefault(key, {}), prefixes.setdefault(name, {})):
                for cause, tokens in sums.causes.items():
                    into[cause] = into.get(cause, 0) + tokens
        return {
            "hour": self.number * 3600,
            "requests": sum(sums.requests for sums in self.pairs.values()),
            "unreported": self.unreported,
            "prompt_tokens": sum(sums.prompt for sums in self.pairs.values()),
            "cached_tokens": sum(sums.cached for sums in self.pairs.values()),
            "causes": causes,
            "keys": keys,
            "prefixes": prefixes,
            "prefix_requests": requests,
            "templates": self.layouts.show(digest),
        }


class MissSums:
    """Hourly sums. Memory is bounded: hours, pairs and causes are."""

    def __init__(self) -> None:
        self._hours: dict[int, _HourSums] = {}
        self._now = _HourSums(-1)
        self._until = 0.0  # end of that hour

    def _hour(self, now: float) -> _HourSums:
        if now < self._until:  # also a clock that goes back
            return self._now
        number = int(now // 3600)
        self._until = (number + 1) * 3600.0
        self._now = self._hours[number] = _HourSums(number)
        while len(self._hours) > HOURS_KEPT:
            del self._hours[min(self._hours)]
        return self._now

    def add(self, decision: Decision, prefix: int) -> None:
        """Add an attributed decision; `prefix`: its first block."""
        hour = self._now if decision.time < self._until else self._hour(decision.time)
        pair = (decision.key_id, prefix)
        sums = hour.pairs.get(pair) or hour.pair(pair)
        prompt, cached = decision.prompt_tokens, decision.cached_tokens or 0
        sums.requests += 1
        sums.prompt += prompt
        sums.cached += cached if cached < prompt else prompt
        if decision.misses is not None:
            causes = sums.causes
            for cause, tokens in decision.misses.tokens.items():
                causes[cause] = causes.get(cause, 0) + tokens

    def add_layout(self, change: EarlyChange, saved: int, now: float) -> None:
        self._hour(now).layouts.add(change, saved)

    def unreported(self) -> None:
        self._hour(time.time()).unreported += 1

    def show(self, digest: Callable[[int], str]) -> list[dict[str, Any]]:
        """Return the hours, the latest first; `digest` turns a prefix hash into its label."""
        return [hour.show(digest) for _, hour in sorted(self._hours.items(), reverse=True)]
