"""Inventory of a cluster as JSON-ready facts, derived from its objects.

An unknown number is None, never 0. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from console.provisioners.kubernetes.api.capabilities import CAPABILITIES, GPU_DOMAINS

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
_PRODUCT = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
_MEMORY_MIB = "nvidia.com/gpu.memory"
_ENDED = ("Succeeded", "Failed")
_SUFFIX = {
    "m": Decimal("0.001"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


@dataclass(frozen=True, slots=True)
class CapabilityFinding:
    """Result for one capability: present with details, or absent with the reason. `unsure`: missing
    rights; it is assumed present and the cluster rejects what it cannot do.
    """

    name: str
    present: bool
    detail: str = ""
    why_not: str = ""
    unsure: bool = False

    @property
    def label(self) -> str:
        return CAPABILITIES[self.name].label

    @property
    def gives(self) -> str:
        return CAPABILITIES[self.name].gives

    @property
    def remedy(self) -> str:
        return "" if self.present else CAPABILITIES[self.name].remedy


@dataclass(frozen=True, slots=True)
class NodePool:
    """Nodes with the same instance type and GPU. `gpus_free` counts nodes that accept pods now,
    None if unknown. `gpu_memory_bytes` is per GPU, 0 if no label gives it.
    """

    instance_type: str
    gpu: str = ""
    gpu_resource: str = ""
    gpu_memory_bytes: int = 0
    nodes: int = 0
    ready: int = 0
    gpus_per_node: int = 0
    gpus: int = 0
    gpus_free: int | None = 0
    cpus: float = 0.0
    memory_bytes: int = 0
    zones: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offers:
    """Names a spec may use. None: missing right to list them, so any may be valid."""

    namespaces: tuple[str, ...] | None = ()
    storage_classes: tuple[str, ...] | None = ()
    default_storage_class: str = ""
    ingress_classes: tuple[str, ...] | None = ()
    gateways: tuple[str, ...] | None = ()
    issuers: tuple[str, ...] | None = ()
    priority_classes: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """Result of a survey of a cluster. `shares`: drivers for existing storage were found, usable or
    not.
    """

    server_version: str = ""
    findings: tuple[CapabilityFinding, ...] = ()
    pools: tuple[NodePool, ...] = ()
    offers: Offers = field(default_factory=Offers)
    notes: tuple[str, ...] = ()
    shares: bool = False

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset(finding.name for finding in self.findings if finding.present)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Inventory:
        """Parse the output of `to_json`, also of earlier releases: missing fields get defaults."""
        findings = tuple(
            parse_dataclass(CapabilityFinding, finding)
            for finding in data.get("findings", ())
            if finding.get("name") in CAPABILITIES
        )
        pools = tuple(parse_dataclass(NodePool, pool) for pool in data.get("pools", ()))
        offers = parse_dataclass(Offers, data.get("offers", {}))
        nested = {"findings": findings, "pools": pools, "offers": offers}
        inventory: Inventory = parse_dataclass(cls, {**data, **nested})
        return inventory


def parse_dataclass(kind: Any, data: Mapping[str, Any]) -> Any:
    """Return the dataclass of JSON made by `asdict`; unknown fields are ignored."""
    dataclass_fields = kind.__dataclass_fields__
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in data.items()
            if name in dataclass_fields
        }
    )


def parse_quantity(text: Any) -> Decimal:
    """Parse a Kubernetes quantity ("500m", "64Gi"); 0 if invalid."""
    written = str(text)
    digits = written.rstrip("mkMGTPEi")
    try:
        return Decimal(digits) * _SUFFIX.get(written[len(digits) :], Decimal(1))
    except InvalidOperation:
        return Decimal(0)


def pools(
    nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]] | None
) -> tuple[NodePool, ...]:
    """Group nodes by instance type and GPU; `pods` None: GPU usage is unknown."""
    taken = None if pods is None else count_gpus_taken(pods)
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        resource, _count = _gpus(node)
        product = next((labels[key] for key in _PRODUCT if labels.get(key)), "")
        key = (labels.get(INSTANCE_TYPE, ""), product if resource else "", resource)
        groups.setdefault(key, []).append(node)
    return tuple(_pool(*key, group, taken) for key, group in sorted(groups.items()))


def _pool(
    instance_type: str,
    product: str,
    resource: str,
    nodes: list[Mapping[str, Any]],
    taken: Mapping[tuple[str, str], int] | None,
) -> NodePool:
    first = nodes[0]
    allocatable = (first.get("status") or {}).get("allocatable") or {}
    labels = [node["metadata"].get("labels") or {} for node in nodes]
    open_nodes = [node for node in nodes if _takes_pods(node)]
    free: int | None = None
    if taken is not None:
        free = sum(
            max(0, _gpus(node)[1] - taken.get((node["metadata"]["name"], resource), 0))
            for node in open_nodes
        )
    return NodePool(
        instance_type=instance_type,
        gpu=product or (resource if resource else ""),
        gpu_resource=resource,
        gpu_memory_bytes=int(parse_quantity(labels[0].get(_MEMORY_MIB, 0)) * 1024**2),
        nodes=len(nodes),
        ready=sum(_is_ready(node) for node in nodes),
        gpus_per_node=_gpus(first)[1],
        gpus=sum(_gpus(node)[1] for node in nodes),
        gpus_free=free,
        cpus=float(parse_quantity(allocatable.get("cpu", 0))),
        memory_bytes=int(parse_quantity(allocatable.get("memory", 0))),
        zones=tuple(sorted({label[ZONE] for label in labels if label.get(ZONE)})),
        taints=tuple(sorted({taint for node in nodes for taint in _taints(node)})),
    )


def count_gpus_taken(pods: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Return GPUs requested by scheduled, unfinished pods, by (node, resource)."""
    gpus_taken: dict[tuple[str, str], int] = {}
    for pod in pods:
        spec = pod.get("spec") or {}
        node = spec.get("nodeName")
        if not node or (pod.get("status") or {}).get("phase") in _ENDED:
            continue
        for resource, count in _requested(spec).items():
            gpus_taken[node, resource] = gpus_taken.get((node, resource), 0) + count
    return gpus_taken


def _requested(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the scheduler's sum: all containers and sidecars, or the largest init step."""
    together: dict[str, int] = {}
    largest: dict[str, int] = {}
    steps = spec.get("initContainers") or []
    for container in [*(spec.get("containers") or []), *steps]:
        resources = container.get("resources") or {}
        amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        alone = container in steps and container.get("restartPolicy") != "Always"
        for name, value in amounts.items():
            if not is_gpu(name):
                continue
            count = int(parse_quantity(value))
            if alone:
                largest[name] = max(largest.get(name, 0), count)
            else:
                together[name] = together.get(name, 0) + count
    names = {*together, *largest}
    return {name: max(together.get(name, 0), largest.get(name, 0)) for name in names}


def is_gpu(resource: str) -> bool:
    domain, _, name = resource.partition("/")
    return domain in GPU_DOMAINS and (name == "gpu" or name.startswith("mig-"))


def _gpus(node: Mapping[str, Any]) -> tuple[str, int]:
    """Return the node's GPU resource and its allocatable count; whole GPUs before slices."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    gpu_names = sorted(
        (name for name, count in allocatable.items() if is_gpu(name) and parse_quantity(count) > 0),
        key=lambda name: (not name.endswith("/gpu"), name),
    )
    return (gpu_names[0], int(parse_quantity(allocatable[gpu_names[0]]))) if gpu_names else ("", 0)


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    )


def _takes_pods(node: Mapping[str, Any]) -> bool:
    return _is_ready(node) and not (node.get("spec") or {}).get("unschedulable")


def _taints(node: Mapping[str, Any]) -> Iterable[str]:
    """Return taints that repel pods, as KEY=VALUE:EFFECT, without taints for node conditions."""
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint["key"].startswith("node.kubernetes.io/") or taint["effect"] == "PreferNoSchedule":
            continue
        value = f"={taint['value']}" if taint.get("value") else ""
        yield f"{taint['key']}{value}:{taint['effect']}"
