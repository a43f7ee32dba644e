"""Who has what: bytes, blocks, lookups and evictions by namespace, and the curve of the node.

A gate of the store which refuses nobody, so its sums are exact at any moment. A namespace which has
nothing in memory is remembered for its counts, but only so many of them: names come from clients.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from cachetier.engine.memory.hit_curve import Curve
from cachetier.engine.store import Declined, EvictionReason
from cachetier.wire import envelope

MAX_EMPTY: Final = 1024


@dataclass(slots=True)
class Space:
    """One namespace; "" is what has no block's key. `bytes` and `blocks` are what is in memory."""

    bytes: int = 0
    blocks: int = 0
    lookups: int = 0
    hits: int = 0
    evicted: dict[EvictionReason, int] = field(
        default_factory=lambda: dict.fromkeys(EvictionReason, 0)
    )


class Census:
    """One event loop only."""

    def __init__(self) -> None:
        self.curve = Curve()
        self._spaces: dict[str, Space] = {}
        self._empty: OrderedDict[str, None] = OrderedDict()

    def looked_up(self, key: bytes, found: bool) -> None:
        space = self._space(envelope.namespace_of(key))
        space.lookups += 1
        space.hits += found
        self.curve.asked(key)

    def spaces(self) -> list[tuple[str, Space]]:
        """Those with the most bytes first."""
        return sorted(self._spaces.items(), key=lambda item: (-item[1].bytes, item[0]))

    # -- a gate --------------------------------------------------------------------------------
    def refuses(self, key: bytes, cost: int, now: float) -> Declined | None:  # noqa: ARG002
        return None

    def crowded(self, key: bytes, cost: int) -> bytes | None:  # noqa: ARG002
        return None

    def added(self, key: bytes, cost: int) -> None:
        namespace = envelope.namespace_of(key)
        space = self._space(namespace)
        self._empty.pop(namespace, None)
        space.bytes += cost
        space.blocks += 1
        self.curve.stored(key, cost)

    def used(self, key: bytes) -> None:
        pass  # a use may be a lookup or not: who asked says so with `looked_up`

    def left(self, key: bytes, cost: int, reason: EvictionReason | None) -> None:
        namespace = envelope.namespace_of(key)
        space = self._space(namespace)
        space.bytes -= cost
        space.blocks -= 1
        if reason is not None:
            space.evicted[reason] += 1
        if not space.blocks:
            self._rest(namespace)

    def _space(self, namespace: str) -> Space:
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = Space()
            self._rest(namespace)
        return space

    def _rest(self, namespace: str) -> None:
        self._empty[namespace] = None
        if len(self._empty) > MAX_EMPTY:
            oldest, _ = self._empty.popitem(last=False)
            del self._spaces[oldest]
