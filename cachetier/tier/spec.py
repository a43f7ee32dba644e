"""Cache tier spec: fields, bounds, rules between fields and effects of changes. Pure.

Form, REST and commands share these checks, which report all errors at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from console.core.errors import Problem, Refused

MIB = 1024**2
GIB = 1024**3
MIN_BYTES = 64 * MIB
MIN_DISK_BYTES = 256 * MIB
MAX_NODES = 16
MIN_CPU_MILLIS, MAX_CPU_MILLIS = 10, 64_000
NODE_OVERHEAD_BYTES = 192 * MIB
"""Memory besides values: interpreter, keys, connection buffers (60 MiB measured when idle)."""
POLICIES = ("arc", "s3fifo", "lru")
_RESERVED = frozenset({"new"})  # used by a page URL
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")


class Effect(StrEnum):
    LIVE = "live"  # no restart, values kept
    NODES = "nodes"  # rolling restart of nodes; disk kept, memory lost
    WORKERS = "workers"  # rolling restart of the endpoints' workers
    FIXED = "fixed"  # immutable after creation


@dataclass(frozen=True, slots=True)
class TierSpec:
    """Specification of a cache tier. `memory_bytes` and `disk_bytes` are per node; 0 means no disk.
    `copies` is the number of nodes per value. `cluster` "" is this machine; `namespace` and
    `storage_class` "" are the cluster's defaults. On a cluster a node requests `cpu_millis`, and
    its memory plus `NODE_OVERHEAD_BYTES`; `cpu_limit_millis` 0 means no limit, `memory_limit_bytes`
    0 as requested.
    """

    memory_bytes: int = GIB
    disk_bytes: int = 0
    node_count: int = 1
    copies: int = 1
    policy: str = POLICIES[0]
    cluster: str = ""
    namespace: str = ""
    storage_class: str = ""
    cpu_millis: int = 250
    cpu_limit_millis: int = 0
    memory_limit_bytes: int = 0

    @property
    def total_memory_bytes(self) -> int:
        return self.memory_bytes * self.node_count

    @property
    def usable_bytes(self) -> float:
        """Return the size for distinct values: memory and disk of all nodes by `copies`."""
        return (self.memory_bytes + self.disk_bytes) * self.node_count / max(self.copies, 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SpareCapacity:
    """Bytes available to one tier on this machine, and the allowed `clusters`."""

    memory_bytes: int
    disk_bytes: int
    clusters: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TierField:
    name: str
    label: str
    help: str
    effect: Effect
    minimum: int = 0
    maximum: int = 0
    choices: tuple[str, ...] = ()
    text: bool = False
    on_cluster: bool = False


FIELDS = (
    TierField(
        "memory_bytes",
        "Memory per node",
        "Cache memory of a node. Changes apply without a restart.",
        Effect.LIVE,
        minimum=MIN_BYTES,
    ),
    TierField(
        "node_count",
        "Nodes",
        "Keys are distributed over the nodes. Adding or losing a node affects only its share.",
        Effect.LIVE,
        minimum=1,
        maximum=MAX_NODES,
    ),
    TierField(
        "disk_bytes",
        "Disk per node",
        "Data evicted from memory is kept on disk and survives restarts. 0: memory only.",
        Effect.NODES,
    ),
    TierField(
        "policy",
        "Eviction policy",
        "Replacement policy when a node is full: arc (default), s3fifo or lru.",
        Effect.NODES,
        choices=POLICIES,
    ),
    TierField(
        "copies",
        "Replication factor",
        "2 stores every value on two nodes: half the capacity, no data loss if a node fails.",
        Effect.WORKERS,
        minimum=1,
        maximum=2,
    ),
    TierField(
        "cpu_millis",
        "CPU request per node",
        "Millicores: 1000 is one core.",
        Effect.NODES,
        minimum=MIN_CPU_MILLIS,
        maximum=MAX_CPU_MILLIS,
        on_cluster=True,
    ),
    TierField(
        "cpu_limit_millis",
        "CPU limit per node",
        "Millicores. 0: no limit.",
        Effect.NODES,
        maximum=MAX_CPU_MILLIS,
        on_cluster=True,
    ),
    TierField(
        "memory_limit_bytes",
        "Memory limit per node",
        "0: equal to the request (node memory plus 192 MiB for the process).",
        Effect.NODES,
        on_cluster=True,
    ),
    TierField(
        "cluster",
        "Cluster",
        "Cluster of the tier and of the endpoints that can use it. Empty: this machine.",
        Effect.FIXED,
        text=True,
    ),
    TierField(
        "namespace",
        "Namespace",
        "Namespace on the cluster. Empty: the cluster's default namespace.",
        Effect.FIXED,
        text=True,
    ),
    TierField(
        "storage_class",
        "Storage class",
        "Storage class of node disks on a cluster. Empty: the cluster's default.",
        Effect.FIXED,
        text=True,
    ),
)
BY_NAME = {field.name: field for field in FIELDS}


def check_name(name: Any) -> str:
    """Raise Refused unless the name is valid for processes, files and objects."""
    if isinstance(name, str) and _NAME.fullmatch(name) and name not in _RESERVED:
        return name
    text = "Invalid cache tier name."
    remedy = "Use 1 to 40 lower-case letters, digits and hyphens, starting with a letter."
    raise Refused(Problem("name", name, text, remedy, "invalid_name"))


def name_taken(name: str) -> Problem:
    text = f"Cache tier {name} already exists."
    return Problem("name", name, text, "Choose another name, or change the existing tier.", "taken")


def create_spec(data: Mapping[str, Any], room: SpareCapacity) -> TierSpec:
    """Build a new tier's spec; raise Refused with all errors."""
    return _check_values(TierSpec(), data, room)


def change_spec(before: TierSpec, data: Mapping[str, Any], room: SpareCapacity) -> TierSpec:
    """Apply `data` to `before`; raise Refused with all errors."""
    remedy = "Create another tier, select it in the endpoints, then delete this one."
    fixed = [
        Problem(name, value, f"{BY_NAME[name].label} of a tier cannot be changed.", remedy, "fixed")
        for name, value in data.items()
        if name in BY_NAME
        and BY_NAME[name].effect is Effect.FIXED
        and value != getattr(before, name)
    ]
    if fixed:
        raise Refused(*fixed)
    return _check_values(before, data, room)


def _check_values(before: TierSpec, data: Mapping[str, Any], room: SpareCapacity) -> TierSpec:
    problems = [problem for name, value in data.items() for problem in _check_field(name, value)]
    if problems:
        raise Refused(*problems)
    values = replace(before, **data)
    problems = [*_check_placement(values, room), *_check_rules(values, before, room)]
    if problems:
        raise Refused(*problems)
    return values


def list_changes(before: TierSpec, wanted: TierSpec) -> dict[str, list[Any]]:
    """Return the differences, such as {"memory_bytes": [old, new]}."""
    return {
        field.name: [getattr(before, field.name), getattr(wanted, field.name)]
        for field in fields(TierSpec)
        if getattr(before, field.name) != getattr(wanted, field.name)
    }


def list_effects(names: Mapping[str, Any]) -> set[Effect]:
    return {BY_NAME[name].effect for name in names}


def _check_field(name: str, value: Any) -> list[Problem]:
    field = BY_NAME.get(name)
    if field is None:
        remedy = f"Send one or more of: {', '.join(BY_NAME)}."
        return [Problem(name, value, f"{name} cannot be changed.", remedy, "unknown_field")]
    error = _find_error(field, value)
    return [Problem(name, value, *error)] if error else []


def _find_error(found: TierField, value: Any) -> tuple[str, str, str] | None:
    """Return message, remedy and code."""
    if found.text:
        if isinstance(value, str) and (not value or _OBJECT.fullmatch(value)):
            return None
        remedy = "Use lower-case letters, digits, dashes and dots, or leave it empty."
        return f"{value!r} is not a valid {found.label.lower()}.", remedy, "invalid_name"
    if found.choices:
        if value in found.choices:
            return None
        remedy = f"Choose one of: {', '.join(found.choices)}."
        return f"{value!r} is not a known {found.label.lower()}.", remedy, "invalid_choice"
    remedy = _describe_range(found)
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{found.label} must be an integer.", remedy, "type"
    if value < found.minimum:
        return f"{found.label} is too small.", remedy, "min_value"
    if found.maximum and value > found.maximum:
        return f"{found.label} is too large.", remedy, "max_value"
    return None


def _describe_range(found: TierField) -> str:
    if found.maximum:
        return f"Enter {found.minimum} to {found.maximum}."
    return f"Enter at least {found.minimum} bytes ({found.minimum // MIB} MiB)."


def _check_placement(wanted: TierSpec, room: SpareCapacity) -> list[Problem]:
    if wanted.cluster:
        if wanted.cluster in room.clusters:
            return []
        names = ", ".join(sorted(room.clusters)) or "none"
        text = f"Unknown cluster {wanted.cluster}."
        remedy = f"Choose one of: {names}; or add it on the Clusters page."
        return [Problem("cluster", wanted.cluster, text, remedy, "unknown_cluster")]
    problems = []
    for name in (
        "namespace",
        "storage_class",
        *(field.name for field in FIELDS if field.on_cluster),
    ):
        value = getattr(wanted, name)
        if value != getattr(TierSpec(), name):
            text = f"{BY_NAME[name].label} applies only to tiers on a cluster."
            remedy = "Omit it, or set a cluster."
            problems.append(Problem(name, value, text, remedy, "cluster_only"))
    return problems


def _check_rules(wanted: TierSpec, before: TierSpec, room: SpareCapacity) -> list[Problem]:
    """Check rules between fields. Shrinking a tier is never rejected for lack of capacity."""
    rules = []
    here = not wanted.cluster
    if here and wanted.total_memory_bytes > max(room.memory_bytes, before.total_memory_bytes):
        largest = room.memory_bytes // wanted.node_count
        size = f"{wanted.node_count} x {wanted.memory_bytes / GIB:.1f} GiB"
        text = f"{size} exceeds the memory available on this machine."
        remedy = f"Enter at most {largest} bytes ({largest / GIB:.1f} GiB), or fewer nodes."
        rules.append(Problem("memory_bytes", wanted.memory_bytes, text, remedy, "max_value"))
    rules += [*_check_disk(wanted, before, room), *_check_limits(wanted)]
    if wanted.copies > wanted.node_count:
        text = f"Replication factor {wanted.copies} requires {wanted.copies} nodes."
        remedy = "Add a node, or set the replication factor to 1."
        rules.append(Problem("copies", wanted.copies, text, remedy, "too_few_nodes"))
    return rules


def _check_limits(wanted: TierSpec) -> list[Problem]:
    """Check that limits are not below requests, which clusters reject."""
    limits = []
    if 0 < wanted.cpu_limit_millis < wanted.cpu_millis:
        text = f"The CPU limit is below the request of {wanted.cpu_millis} millicores."
        remedy = f"Enter 0 for no limit, or at least {wanted.cpu_millis}."
        value = wanted.cpu_limit_millis
        limits.append(Problem("cpu_limit_millis", value, text, remedy, "min_value"))
    least = wanted.memory_bytes + NODE_OVERHEAD_BYTES
    if 0 < wanted.memory_limit_bytes < least:
        text = f"The node needs {least} bytes: its memory and {NODE_OVERHEAD_BYTES // MIB} MiB."
        remedy = f"Enter 0 for that minimum, or at least {least}."
        value = wanted.memory_limit_bytes
        limits.append(Problem("memory_limit_bytes", value, text, remedy, "min_value"))
    return limits


def _check_disk(wanted: TierSpec, before: TierSpec, room: SpareCapacity) -> list[Problem]:
    if not wanted.disk_bytes:
        return []
    total = wanted.disk_bytes * wanted.node_count
    if wanted.disk_bytes < MIN_DISK_BYTES:
        remedy = f"Enter 0 for no disk, or at least {MIN_DISK_BYTES} bytes (256 MiB)."
        text = "The disk is too small."
        return [Problem("disk_bytes", wanted.disk_bytes, text, remedy, "min_value")]
    if not wanted.cluster and total > max(room.disk_bytes, before.disk_bytes * before.node_count):
        largest = room.disk_bytes // wanted.node_count
        text = "The disk size exceeds the space available on this machine."
        remedy = f"Enter at most {largest} bytes ({largest / GIB:.1f} GiB), or 0 for no disk."
        return [Problem("disk_bytes", wanted.disk_bytes, text, remedy, "max_value")]
    return []
