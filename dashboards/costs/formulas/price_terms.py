"""Fields of an endpoint spec that determine its price, calibration and place in reports.

Read from the stored JSON without parsing the whole spec: a page covers hundreds of endpoints, and
parsing would dominate its time. The result equals that of a parsed spec.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from endpoints.spec.endpoint_spec import DEFAULT_ROUTERS, GIB, EndpointSpec, gpus_of

THIS_MACHINE = "this-machine"
"""Instance type of the local machine, used for workers outside any cluster."""

FOREIGN = "redis:"
"""Name prefix of a cache tier on an external Redis."""

_PARSED = EndpointSpec(name="", model="")
_L1, _L2, _OWN = _PARSED.cache.l1, _PARSED.cache.l2, _PARSED.resources
_WEIGHTS = ("bucket", "file_system", "claim", "location")
_OURS, _ROUTER = _L2.backend, _PARSED.router


def label(machine: str) -> str:
    return "This machine" if machine == THIS_MACHINE else machine


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources of one worker.

    `machine` is empty if no instance type is set; `l1_bytes` is 0 without L1. `tier`: name of the
    cache tier, empty for none, `redis:` and its address for an external Redis.
    """

    model: str
    machine: str
    gpus: int
    cpus: float
    memory_bytes: int
    l1_bytes: int
    tier: str = ""
    simulated: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    routers: int = 0  # on a cluster; on a single machine they share its resources
    router_cpus: float = 0.0
    router_memory_bytes: int = 0
    settings: str = ""
    """Digest of everything that affects the cost of a prompt token: endpoints with equal values
    share a calibration.
    """


def parse_stored_needs(spec: Mapping[str, Any]) -> Needs:
    """Read the JSON of an accepted spec; missing fields have their defaults."""
    cache, own = _of(spec, "cache"), _of(spec, "resources")
    l1, l2 = _of(cache, "l1"), _of(cache, "l2")
    placement, pod, source = _of(spec, "placement"), _of(spec, "pod"), _of(spec, "source")
    types = placement.get("instance_types") or ()
    machine = THIS_MACHINE if not placement.get("cluster") else str(types[0]) if types else ""
    gpus = gpus_of(_of(pod, "resources"), own.get("gpus", _OWN.gpus))
    cpus = float(own.get("cpus", _OWN.cpus))
    router = _of(spec, "router")
    has_l1 = l1.get("enabled", _L1.enabled)
    engine = str(spec.get("engine", _PARSED.engine))
    args = sorted(str(worker_arg) for worker_arg in spec.get("worker_args") or ())
    # Without GPUs the token cost depends on the number of CPUs.
    alike = [
        spec.get("model"),
        engine,
        machine,
        gpus,
        0 if gpus else cpus,
        args,
        pod.get("image", ""),
        # Where other weights than those named by `model` are.
        *(str(source[name]) for name in _WEIGHTS if source.get(name)),
    ]
    return Needs(
        model=str(spec.get("model", "")),
        machine=machine,
        gpus=gpus,
        cpus=cpus,
        memory_bytes=int(own.get("memory_gib", _OWN.memory_gib) * GIB),
        l1_bytes=int(l1.get("size_gib", _L1.size_gib) * GIB) if has_l1 else 0,
        tier=_tier(l2) if l2.get("enabled", _L2.enabled) else "",
        simulated=engine == "simulated",
        tags={str(key): str(value) for key, value in _of(spec, "tags").items()},
        routers=(router.get("replicas") or DEFAULT_ROUTERS) if placement.get("cluster") else 0,
        router_cpus=float(router.get("cpus", _ROUTER.cpus)),
        router_memory_bytes=int(router.get("memory_gib", _ROUTER.memory_gib) * GIB),
        settings=hashlib.sha256(json.dumps(alike).encode()).hexdigest()[:16],
    )


def _tier(l2: Mapping[str, Any]) -> str:
    if l2.get("backend", _L2.backend) == _OURS:
        return str(l2.get("tier", _L2.tier))
    # Address only, without user and password.
    where = str(l2.get("url", "")).rpartition("//")[2].rpartition("@")[2].partition("/")[0]
    return f"{FOREIGN}{where}"


def _of(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    number = data.get(name)
    return number if isinstance(number, Mapping) else {}
