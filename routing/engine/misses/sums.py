"""Computed prompt tokens by cause: five-minute sums by API key and prompt prefix."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from routing.engine.misses.layouts import EarlyChange, LayoutTotals

if TYPE_CHECKING:
    from routing.engine.observe.decisions import Decision

SLOT_S: Final = 300
HOURS_KEPT: Final = 25
PAIRS_KEPT: Final = 25_000  # of API key and prompt prefix, in all slots; others count as OTHER
_SLOTS_KEPT: Final = HOURS_KEPT * 3600 // SLOT_S
OTHER: Final = "other"

Pair = tuple[str, int]
_OTHER: Pair = (OTHER, -1)


class _PairSums:
    __slots__ = ("cached", "causes", "prompt", "requests")

    def __init__(self) -> None:
        self.requests = self.prompt = self.cached = 0
        self.causes: dict[str, int] = {}


class _SlotSums:
    __slots__ = ("layouts", "number", "pairs", "unreported")

    def __init__(self, number: int) -> None:
        self.number = number
        self.unreported = 0
        self.pairs: dict[Pair, _PairSums] = {}
        self.layouts = LayoutTotals()

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
            "start": self.number * SLOT_S,
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
    """Sums of the last HOURS_KEPT in slots of SLOT_S. Memory is bounded: slots, pairs and causes
    are.
    """

    def __init__(self) -> None:
        self._slots: dict[int, _SlotSums] = {}
        self._now = _SlotSums(-1)
        self._until = 0.0  # end of that slot
        self._pairs = 0

    def _slot(self, now: float) -> _SlotSums:
        if now < self._until:  # also a clock that goes back
            return self._now
        number = int(now // SLOT_S)
        self._until = (number + 1) * float(SLOT_S)
        self._now = self._slots[number] = _SlotSums(number)
        while min(self._slots) <= number - _SLOTS_KEPT:
            self._pairs -= len(self._slots.pop(min(self._slots)).pairs)
        return self._now

    def _pair(self, slot: _SlotSums, pair: Pair) -> _PairSums:
        name = pair if self._pairs < PAIRS_KEPT else _OTHER
        pair_sums = slot.pairs.get(name)
        if pair_sums is None:
            self._pairs += 1
            pair_sums = slot.pairs[name] = _PairSums()
        return pair_sums

    def add(self, decision: Decision, prefix: int) -> None:
        """Add an attributed decision; `prefix`: its first block."""
        slot = self._now if decision.time < self._until else self._slot(decision.time)
        pair = (decision.key_id, prefix)
        sums = slot.pairs.get(pair) or self._pair(slot, pair)
        prompt, cached = decision.prompt_tokens, decision.cached_tokens or 0
        sums.requests += 1
        sums.prompt += prompt
        sums.cached += cached if cached < prompt else prompt
        if decision.misses is not None:
            causes = sums.causes
            for cause, tokens in decision.misses.tokens.items():
                causes[cause] = causes.get(cause, 0) + tokens

    def add_layout(self, change: EarlyChange, saved: int, now: float) -> None:
        self._slot(now).layouts.add(change, saved)

    def unreported(self) -> None:
        self._slot(time.time()).unreported += 1

    def show(self, digest: Callable[[int], str]) -> list[dict[str, Any]]:
        """Return the slots, the latest first; `digest` turns a prefix hash into its label."""
        return [slot.show(digest) for _, slot in sorted(self._slots.items(), reverse=True)]
