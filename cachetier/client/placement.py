"""Placement of keys now and before recent changes: a moved key has a previous owner for a while.

Pure; times are the caller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cachetier.client.rendezvous import Rendezvous

REBALANCING_S: Final = 300.0
"""Time for which moved keys are also looked up at their previous owner."""
_MAX_PREVIOUS = 3


@dataclass(frozen=True, slots=True)
class Placement:
    """Rings that place keys on nodes. `previous` holds earlier rings with the time until which they
    count, newest first.
    """

    ring: Rendezvous
    previous: tuple[tuple[float, Rendezvous], ...] = ()

    def replaced(self, ring: Rendezvous, now: float) -> Placement:
        """Return the placement on `ring`, which remembers this one."""
        if ring == self.ring:
            return self
        before = ((now + REBALANCING_S, self.ring), *self.previous)
        previous: list[tuple[float, Rendezvous]] = []
        for until, rendezvous in before:
            if (
                rendezvous.names
                and rendezvous != ring
                and until > now
                and all(rendezvous != old for _, old in previous)
            ):
                previous.append((until, rendezvous))
        return Placement(ring, tuple(previous[:_MAX_PREVIOUS]))

    def is_outdated(self, now: float) -> bool:
        """Return whether a previous ring no longer counts."""
        return bool(self.previous) and self.previous[-1][0] <= now

    def current(self, now: float) -> Placement:
        """Return the placement without outdated rings."""
        return Placement(self.ring, tuple(entry for entry in self.previous if entry[0] > now))

    def owner(self, key: bytes, rank: int) -> str:
        """Return the node of the key's copy `rank`, "" if there is none."""
        placed = self.ring.place(key, rank + 1)
        return placed[rank] if rank < len(placed) else ""

    def previous_owner(self, key: bytes, copies: int, usable: Collection[str]) -> str:
        """Return the latest other owner of the key among `usable`, "" if there is none."""
        now = self.ring.place(key, copies)
        for _, ring in self.previous:
            for name in ring.place(key, copies):
                if name in usable and name not in now:
                    return name
        return ""
