"""Gates of the memory store: census, quotas and admission control per namespace."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cachetier.engine.memory.hit_curve import HitCurve
from cachetier.engine.policies import EvictionPolicy, make_policy
from cachetier.engine.policies.base import GhostList
from cachetier.engine.store import Declined, DeclineReason, EvictionReason, Gate
from cachetier.wire import envelope

MAX_EMPTY: Final = 1024  # namespaces without values
# Admission control.
_WINDOW: Final = 4  # decisions per capacity evicted or rejected
_SHUT_BELOW_USES: Final = 0.01  # uses per evicted value
_OPEN_ABOVE_SHARE: Final = 0.05  # share of rejected bytes requested again in time
# Namespace names come from clients: the least recent one is dropped and starts anew.
_MAX_NAMESPACES: Final = 256


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
    """Usage per namespace: bytes, blocks, lookups, evictions, and the node's hit curve.

    Rejects nothing, so its sums are always exact. A bounded number of namespaces without values is
    kept for their counts: names come from clients. Lookups are counted by `looked_up`: not every
    use is one. Event loop only.
    """

    def __init__(self) -> None:
        self.curve = HitCurve()
        self._spaces: dict[str, NamespaceUsage] = {}
        self._empty: OrderedDict[str, None] = OrderedDict()

    def looked_up(self, key: bytes, found: bool) -> None:
        space = self._space(envelope.parse_namespace(key))
        space.lookups += 1
        space.hits += found
        self.curve.record_lookup(key)

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


@dataclass(slots=True)
class _NamespaceValues:
    """Values of one namespace with their own eviction order."""

    limit: int
    policy: EvictionPolicy
    used: int = 0


class Quotas(Gate):
    """Quotas: above its quota a namespace evicts its own values, by `policy`.

    Namespaces without a quota share the rest. Disk is not counted: values evicted by a quota may
    stay there.
    """

    def __init__(self, limits: Mapping[str, int], policy: str) -> None:
        self._shares = {
            namespace: _NamespaceValues(limit, make_policy(policy, limit))
            for namespace, limit in limits.items()
        }

    def refuses(self, key: bytes, cost: int, now: float) -> Declined | None:  # noqa: ARG002
        share = self._share(key)
        if share is None or cost <= share.limit:
            return None
        return Declined(
            DeclineReason.QUOTA,
            f"{cost} bytes exceed the quota of this namespace ({share.limit} bytes)",
        )

    def crowded(self, key: bytes, cost: int) -> bytes | None:
        share = self._share(key)
        if share is None or share.used + cost <= share.limit:
            return None
        return share.policy.victim()

    def added(self, key: bytes, cost: int) -> None:
        share = self._share(key)
        if share is not None:
            share.used += cost
            share.policy.added(key, cost)

    def used(self, key: bytes) -> None:
        share = self._share(key)
        if share is not None:
            share.policy.used(key)

    def left(self, key: bytes, cost: int, reason: EvictionReason | None) -> None:
        share = self._share(key)
        if share is None:
            return
        share.used -= cost
        if reason in (EvictionReason.CAPACITY, EvictionReason.QUOTA):
            share.policy.evicted(key)
        else:
            share.policy.removed(key)

    def _share(self, key: bytes) -> _NamespaceValues | None:
        return self._shares.get(envelope.parse_namespace(key))


@dataclass(slots=True)
class _NamespaceState:
    gone: int = 0
    gone_bytes: int = 0
    uses: int = 0  # of any value
    refused: int = 0  # bytes
    again: int = 0  # bytes of them requested again
    shut: GhostList | None = None  # recently rejected keys; None: namespace open


class NamespaceAdmission(Gate):
    """Admission control: rejects values of a namespace that only thrashes.

    A job that reads more than the node holds evicts others' values without hits of its own. Per
    namespace, evictions and uses are counted: when a quarter of the capacity was evicted with less
    than one use per hundred values, the namespace is shut; its stored values stay, so a cyclic job
    finds some.

    While shut, rejected keys are remembered for as many bytes as the node holds: a key requested
    again that soon would have been a hit. When enough of them are, the namespace is opened. Off by
    default (--admission); docs/benchmarks.md has gains and costs. `capacity` returns the
    node's current capacity in bytes.
    """

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
            "values of this namespace are evicted before they are used: enlarge "
            "the node or store fewer at once",
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
