"""Admission control: rejects values of a namespace that only thrashes.

A gate of the store. A job that reads more than the node holds evicts others' values without hits of
its own. Per namespace, evictions and uses are counted: when a quarter of the capacity was evicted
with less than one use per hundred values, the namespace is shut; its stored values stay, so a
cyclic job finds some.

While shut, rejected keys are remembered for as many bytes as the node holds: a key requested again
that soon would have been a hit. When enough of them are, the namespace is opened. Off by default
(--admission); docs/benchmarks/cache.md has gains and costs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from cachetier.engine.policies.base import GhostList
from cachetier.engine.store import Declined, DeclineReason, EvictionReason, Gate
from cachetier.wire import envelope

_WINDOW: Final = 4  # decisions per capacity evicted or rejected
_SHUT_BELOW_USES: Final = 0.01  # uses per evicted value
_OPEN_ABOVE_SHARE: Final = 0.05  # share of rejected bytes requested again in time
# Namespace names come from clients: the least recent one is dropped and starts anew.
_MAX_NAMESPACES: Final = 256


class _NamespaceState:
    __slots__ = ("again", "gone", "gone_bytes", "refused", "shut", "uses")

    def __init__(self) -> None:
        self.gone = 0
        self.gone_bytes = 0
        self.uses = 0  # of any value
        self.refused = 0  # bytes
        self.again = 0  # bytes of them requested again
        self.shut: GhostList | None = None  # recently rejected keys; None: namespace open


class NamespaceAdmission(Gate):
    """Admission per namespace. `capacity` returns the node's current capacity in bytes."""

    def __init__(self, capacity: Callable[[], int]) -> None:
        self._capacity = capacity
        self._spaces: OrderedDict[str, _NamespaceState] = OrderedDict()

    def shut(self) -> list[str]:
        return [name for name, space in self._spaces.items() if space.shut is not None]

    def refuses(self, key: bytes, cost: int, now: float) -> Declined | None:  # noqa: ARG002
        space = self._space(key)
        if space.shut is None:
            return None
        space.refused += cost
        if space.shut.take(key):
            space.again += cost
        if space.refused >= self._capacity() // _WINDOW:
            if space.again >= _OPEN_ABOVE_SHARE * space.refused:
                space.shut = None
                space.gone = space.gone_bytes = space.uses = 0
            space.refused = space.again = 0
            if space.shut is None:
                return None
        space.shut.add(key, cost)
        space.shut.trim(self._capacity())
        return Declined(
            DeclineReason.ADMISSION,
            "values of this namespace have to go before anybody uses them: a larger node, or "
            "fewer at once, would help",
        )

    def used(self, key: bytes) -> None:
        self._space(key).uses += 1

    def left(self, key: bytes, cost: int, reason: EvictionReason | None) -> None:
        if reason not in (EvictionReason.CAPACITY, EvictionReason.QUOTA):
            return
        space = self._space(key)
        if space.shut is not None:
            return
        space.gone += 1
        space.gone_bytes += cost
        if space.gone_bytes >= self._capacity() // _WINDOW:
            if space.uses < _SHUT_BELOW_USES * space.gone:
                space.shut = GhostList()
                space.refused = space.again = 0
            space.gone = space.gone_bytes = space.uses = 0

    def _space(self, key: bytes) -> _NamespaceState:
        name = envelope.parse_namespace(key)
        space = self._spaces.get(name)
        if space is None:
            space = self._spaces[name] = _NamespaceState()
            if len(self._spaces) > _MAX_NAMESPACES:
                self._spaces.popitem(last=False)
        else:
            self._spaces.move_to_end(name)
        return space
