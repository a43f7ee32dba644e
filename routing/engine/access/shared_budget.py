"""A key's token budget as several routers of an endpoint use it up together. Pure.

Each router states how many tokens it has used since its start. What is left is the console's last
figure less what each router used beyond the tokens included in it, so that it does not depend on
when a message arrives.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_ROUTERS = 256  # remembered of a key, ended ones included


class SharedBudget:
    """Token budget shared by several routers. `left`: tokens when `included` (tokens by router
    instance) were counted; None: the whole budget, as nothing was received. `spent`, `reserved`:
    tokens of the other routers beyond that.
    """

    __slots__ = ("_adopted", "_included", "_reserved", "_used", "left", "reserved", "spent")

    def __init__(self) -> None:
        self.left: int | None = None
        self.spent = 0
        self.reserved = 0
        self._adopted = False  # from a peer, not the console
        self._included: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._reserved: dict[str, int] = {}

    def unused(self, budget: int, instance: str, used: int) -> int:
        """Return what all routers have left; `used`: by this router `instance` since its start."""
        left = budget if self.left is None else self.left
        return left - (used - self._included.get(instance, 0)) - self.spent

    def set_left(self, left: int | None, included: Mapping[str, int]) -> None:
        self.left = left
        self._adopted = False
        self._included = dict(included)
        self._sum()

    def begin_period(self, instance: str, used: int) -> None:
        """Give the whole budget anew."""
        self.set_left(None, {**self._used, instance: used})

    def apply_peer(self, instance: str, used: int, reserved: int, left: int, newer: bool) -> None:
        """Apply a peer's figures. `left`: its own view; taken over if this router is `newer` and
        has none.
        """
        if instance not in self._used and len(self._used) >= MAX_ROUTERS:
            del self._used[next(iter(self._used))]
        self._used[instance] = used
        self._reserved[instance] = reserved
        if newer and self.left is None:
            self.left, self._adopted = left, True
        if newer and self._adopted:  # `left` includes what older routers had used
            self._included.setdefault(instance, used)
        self._sum()

    def lost(self, instance: str) -> None:
        """Release the reservations of a router that ended; what it used stays used."""
        if self._reserved.pop(instance, 0):
            self._sum()

    def _sum(self) -> None:
        included = self._included
        self.spent = sum(max(used - included.get(i, 0), 0) for i, used in self._used.items())
        self.reserved = sum(self._reserved.values())
