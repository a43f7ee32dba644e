"""Templates whose prompts change early: what that costs, and what a stable layout would save.

The saving is a replay of the requests in order, on the workers that had them: with the stable part
first, a worker computes it once, and has it until it loses its cache or goes without the template
for longer than blocks last (median age of the latest evictions).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

TEMPLATES_KEPT = 256  # in the replay, the latest used
TEMPLATES_SUMMED = 64  # in each slot of the ledger's sums
_AGES_KEPT = 32


@dataclass(slots=True)
class EarlyChange:
    """One request with an early change; in tokens. `changed`: computed because of it, by cause.
    `prefix`: its first block.
    """

    template: int
    changed: dict[str, int]
    offset: int
    stable: int
    part: str
    decision: str
    prefix: int


@dataclass(slots=True, eq=False)
class LayoutSums:
    requests: int = 0
    saved: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    last: EarlyChange | None = None

    def add(self, change: EarlyChange, saved: int) -> None:
        self.requests += 1
        self.saved += saved
        for cause, tokens in change.changed.items():
            self.changed[cause] = self.changed.get(cause, 0) + tokens
        self.last = change

    def show(self, digest: Callable[[int], str]) -> dict[str, Any]:
        last = self.last
        assert last is not None
        return {
            "requests": self.requests,
            "causes": self.changed,
            "saved_tokens": self.saved,
            "changed_offset": last.offset,
            "changed_part": last.part,
            "stable_tokens": last.stable,
            "decision": last.decision,
            "prefix": digest(last.prefix),
        }


class LayoutReplay:
    """When each worker last had the stable part of a template, if it stood first."""

    def __init__(self) -> None:
        self._seen: dict[int, dict[int, float]] = {}  # template, tenure, time
        self._ages: deque[float] = deque(maxlen=_AGES_KEPT)

    def evicted(self, age_s: float) -> None:
        self._ages.append(age_s)

    def save(self, change: EarlyChange, tenure: int, block: int, now: float) -> int:
        """Return the tokens that would have been cached. `tenure`: bit of the worker's."""
        seen_layouts = self._seen.pop(change.template, None) or {}
        self._seen[change.template] = seen_layouts
        if len(self._seen) > TEMPLATES_KEPT:
            del self._seen[next(iter(self._seen))]
        last = seen_layouts.get(tenure)
        seen_layouts.pop(tenure, None)
        seen_layouts[tenure] = now
        while len(seen_layouts) > TEMPLATES_KEPT:
            del seen_layouts[next(iter(seen_layouts))]
        if last is None or not tenure or (self._ages and now - last > median(self._ages)):
            return 0
        return min(change.stable // block * block, sum(change.changed.values()))


class LayoutTotals:
    """Sums by template; beyond TEMPLATES_SUMMED, further ones are left out."""

    def __init__(self) -> None:
        self._templates: dict[int, LayoutSums] = {}

    def add(self, change: EarlyChange, saved: int) -> None:
        sums = self._templates.get(change.template)
        if sums is None:
            if len(self._templates) >= TEMPLATES_SUMMED:
                return
            sums = self._templates[change.template] = LayoutSums()
        sums.add(change, saved)

    def show(self, digest: Callable[[int], str]) -> dict[str, Any]:
        return {digest(name): sums.show(digest) for name, sums in self._templates.items()}
