"""Computed prompt tokens by cause: since the start, and per hour by API key and prompt prefix."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

HOURS_KEPT = 25  # the current one and a day
LABELS_KEPT = 100  # of each kind per hour; the rest is counted as OTHER
OTHER = "other"


class _HourSums:
    __slots__ = ("cached", "causes", "hour", "keys", "prefixes", "prompt", "requests", "unreported")

    def __init__(self, hour: int) -> None:
        self.hour = hour
        self.requests = self.prompt = self.cached = self.unreported = 0
        self.causes: dict[str, int] = {}
        self.keys: dict[str, dict[str, int]] = {}
        self.prefixes: dict[int | str, dict[str, int]] = {}


class MissSums:
    """Hourly sums. Memory is bounded: hours, labels and causes are."""

    def __init__(self) -> None:
        self._hours: dict[int, _HourSums] = {}

    def _hour(self, now: float) -> _HourSums:
        number = int(now // 3600)
        found = self._hours.get(number)
        if found is None:
            found = self._hours[number] = _HourSums(number)
            while len(self._hours) > HOURS_KEPT:
                del self._hours[min(self._hours)]
        return found

    def add(
        self,
        split: Mapping[str, int],
        prompt: int,
        cached: int,
        key: str,
        prefix: int,
        now: float | None = None,
    ) -> None:
        hour = self._hour(time.time() if now is None else now)
        hour.requests += 1
        hour.prompt += prompt
        hour.cached += cached
        if not split:
            return
        by_key = hour.keys.get(key)
        if by_key is None:
            name = key if len(hour.keys) < LABELS_KEPT else OTHER
            by_key = hour.keys.setdefault(name, {})
        by_prefix = hour.prefixes.get(prefix)
        if by_prefix is None:
            label: int | str = prefix if len(hour.prefixes) < LABELS_KEPT else OTHER
            by_prefix = hour.prefixes.setdefault(label, {})
        for sums in (hour.causes, by_key, by_prefix):
            for cause, tokens in split.items():
                sums[cause] = sums.get(cause, 0) + tokens

    def unreported(self) -> None:
        self._hour(time.time()).unreported += 1

    def show(self, digest: Callable[[int], str]) -> list[dict[str, Any]]:
        """Return the hours, the latest first; `digest` turns a prefix hash into its label."""
        return [
            {
                "hour": one.hour * 3600,
                "requests": one.requests,
                "unreported": one.unreported,
                "prompt_tokens": one.prompt,
                "cached_tokens": one.cached,
                "causes": one.causes,
                "keys": one.keys,
                "prefixes": {
                    name if isinstance(name, str) else digest(name): sums
                    for name, sums in one.prefixes.items()
                },
            }
            for _, one in sorted(self._hours.items(), reverse=True)
        ]
