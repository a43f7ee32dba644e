"""Changes of an endpoint's spec that carry out the remedy of a cause of misses. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.fields import MAX_REPLICAS
from routing.engine.misses import attribution as causes

_LARGEST_L1_GIB = 4096.0
_L2_KEEPS = (
    *(causes.EVICTED_DEVICE, causes.LOST_RESTART, causes.LOST_ROLLOUT, causes.LOST_SCALE_DOWN),
)
_L2_ON = {"cache.l1.enabled": True, "cache.l2.enabled": True}


@dataclass(frozen=True, slots=True)
class MissFix:
    """Link to a change that avoids misses. `changes`: spec values by path. `button`: label of the
    link to the form with them.
    """

    button: str
    changes: Mapping[str, Any]


def propose_fix(cause: str, spec: EndpointSpec) -> MissFix | None:
    """Return the change for this cause; None if no field of the endpoint helps further."""
    if cause in (causes.PLACED_STRATEGY, causes.NOT_HASHED):
        return _strategy(spec, "prefixaware")
    if cause == causes.PLACED_LOAD:
        return _replicas(spec)
    if cause == causes.EVICTED_UNKNOWN:
        return _strategy(spec, "kvaware")
    if cause == causes.EVICTED_L1 or (cause == causes.EVICTED_DEVICE and not spec.cache.l1.enabled):
        return _l1(spec)
    if cause in _L2_KEEPS:
        return None if spec.cache.l2.enabled else MissFix("Enable L2", _L2_ON)
    if cause == causes.OTHER_SALT and spec.routing.cache_isolation == "key":
        return MissFix("Share by key group", {"routing.cache_isolation": "group"})
    return None


def _strategy(spec: EndpointSpec, strategy: str) -> MissFix | None:
    routing = spec.routing
    if routing.enabled and routing.strategy == strategy:
        return None
    changes = {"routing.enabled": True, "routing.strategy": strategy}
    return MissFix(f"Use {strategy}", changes)


def _replicas(spec: EndpointSpec) -> MissFix | None:
    if spec.scaling.enabled or spec.replicas >= MAX_REPLICAS:
        return None
    more = spec.replicas + 1
    return MissFix(f"{spec.replicas} → {more} replicas", {"replicas": more})


def _l1(spec: EndpointSpec) -> MissFix | None:
    """Enable L1, or double it."""
    l1 = spec.cache.l1
    if not l1.enabled:
        return MissFix("Enable L1", {"cache.l1.enabled": True})
    size = min(2 * l1.size_gib, _LARGEST_L1_GIB)
    if size <= l1.size_gib:
        return None
    return MissFix(f"L1 {l1.size_gib:g} → {size:g} GiB", {"cache.l1.size_gib": size})
