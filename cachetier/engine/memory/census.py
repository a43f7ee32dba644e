"""Usage per namespace: bytes, blocks, lookups, evictions, and the node's hit curve.

A gate of the store that rejects nothing, so its sums are always exact. A bounded number of
namespaces without values is kept for their counts: names come from clients.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from cachetier.engine.memory.hit_curve import HitCurve
from cachetier.engine.store import EvictionReason, Gate
from cachetier.wire import envelope

MAX_EMPTY: Final = 1024


@dataclass(slots=True)
class NamespaceUsage:
    """Memory usage of one namespace; "" is for keys that are not blocks."""

    bytes: int = 0
    blocks: int = 0
    lookups: int = 0
    hits: int = 0
    evicted: dict[EvictionReason, int] = field(
        default_factory=lambda: dict.fromkeys(EvictionReason, 0)
    )


class Census(Gate):
    """Usage of all namespaces. Event loop only.

    Lookups are counted by `looked_up`: not every use is one.
    """

    def __init__(self) -> None:
        self.curve = HitCurve()
        self._spaces: dict[str, NamespaceUsage] = {}
        self._empty: OrderedDict[str, None] = OrderedDict()

    def looked_up(self, key: bytes, found: bool) -> None:
        space = self._space(envelope.parse_namespace(key))
        space.lookups += 1
        space.hits += found
        self.curve.asked(key)

    def spaces(self) -> list[tuple[str, NamespaceUsage]]:
        """Return the namespaces, largest first."""
        return sorted(self._spaces.items(), key=lambda item: (-item[1].bytes, item[0]))

    def added(self, key: bytes, cost: int) -> None:
        namespace = envelope.parse_namespace(key)
        space = self._space(namespace)
        self._empty.pop(namespace, None)
        space.bytes += cost
        space.blocks += 1
        self.curve.stored(key, cost)

    def left(self, key: bytes, cost: int, reason: EvictionReason | None) -> None:
        namespace = envelope.parse_namespace(key)
        space = self._space(namespace)
        space.bytes -= cost
        space.blocks -= 1
        if reason is not None:
            space.evicted[reason] += 1
        if not space.blocks:
            self._rest(namespace)

    def _space(self, namespace: str) -> NamespaceUsage:
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = NamespaceUsage()
            self._rest(namespace)
        return space

    def _rest(self, namespace: str) -> None:
        self._empty[namespace] = None
        if len(self._empty) > MAX_EMPTY:
            oldest, _ = self._empty.popitem(last=False)
            del self._spaces[oldest]
