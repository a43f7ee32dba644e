"""What a node says of itself on its admin port, as numbers for people.

Promises a deadline, and None rather than an error: a node that does not answer costs nothing but
the numbers. A number the node does not show is None, not zero. Must not know Django or rows.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import httpx

from console.core.fetch import fetch
from console.processkit.metrics import MetricSample, parse, total

DEADLINE_S = 1.0
MAX_NAMESPACES = 20
_OPERATIONS = "emberline_l2_operations_total"
_MEMORY, _DISK = "memory", "nvme"
_MAX_BYTES = 2 * 1024**2


@dataclass(frozen=True, slots=True)
class Namespace:
    """What the node holds of one model in one layout; counts since the node's start."""

    namespace: str
    bytes: float = 0
    blocks: float = 0
    lookups: float = 0
    hits: float = 0
    evicted: float = 0


@dataclass(frozen=True, slots=True)
class Curve:
    """The hit rate there would be at other sizes, from a sample of the lookups."""

    capacity_bytes: float = 0
    requests: float = 0
    points: tuple[tuple[float, float], ...] = ()  # (bytes, hit rate), growing


@dataclass(frozen=True, slots=True)
class NodeStats:
    """Bytes and counts since the node's start."""

    used_bytes: float | None = None
    capacity_bytes: float | None = None
    disk_used_bytes: float | None = None
    disk_capacity_bytes: float | None = None
    blocks: float | None = None
    lookups: float | None = None
    hits: float | None = None
    evictions: float | None = None
    connections: float | None = None
    namespaces: tuple[Namespace, ...] = field(default=())
    curve: Curve | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> NodeStats:
        """What `as_json` gave; what an older version wrote loses only what it lacks."""
        known = {one.name for one in fields(cls)}
        facts = {name: value for name, value in data.items() if name in known}
        facts["namespaces"] = tuple(Namespace(**one) for one in facts.get("namespaces", ()))
        curve = facts.get("curve")
        facts["curve"] = _curve(curve) if isinstance(curve, dict) else None
        return cls(**facts)


def read(text: str) -> NodeStats:
    samples = parse(text, "emberline_l2_")
    lookups, hits = _found(samples)
    return NodeStats(
        used_bytes=total(samples, "emberline_l2_used_bytes", medium=_MEMORY),
        capacity_bytes=total(samples, "emberline_l2_capacity_bytes", medium=_MEMORY),
        disk_used_bytes=total(samples, "emberline_l2_used_bytes", medium=_DISK),
        disk_capacity_bytes=total(samples, "emberline_l2_capacity_bytes", medium=_DISK),
        blocks=total(samples, "emberline_l2_blocks"),
        lookups=lookups,
        hits=hits,
        evictions=total(samples, "emberline_l2_evicted_blocks_total"),
        connections=total(samples, "emberline_l2_connections"),
    )


def read_namespaces(data: Any) -> tuple[Namespace, ...]:
    """The largest of GET /namespaces; what is not as expected is left out."""
    found = []
    listed = data.get("namespaces") if isinstance(data, dict) else None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("namespace"), str):
            numbers = {
                name: float(one.get(name) or 0)
                for name in ("bytes", "blocks", "lookups", "hits", "evicted")
                if isinstance(one.get(name) or 0, (int, float))
            }
            found.append(Namespace(one["namespace"], **numbers))
    return tuple(sorted(found, key=lambda one: -one.bytes)[:MAX_NAMESPACES])


def read_curve(data: Any) -> Curve | None:
    """GET /curve; None while the node has not seen enough to say."""
    if not isinstance(data, dict) or not isinstance(data.get("points"), list):
        return None
    points = [
        (point.get("bytes"), point.get("hit_rate"))
        for point in data["points"]
        if isinstance(point, dict)
    ]
    return _curve({**data, "points": points})


def _curve(data: dict[str, Any]) -> Curve | None:
    numbers = (int, float)
    points = tuple(
        (float(size), float(rate))
        for size, rate in data.get("points", ())
        if isinstance(size, numbers) and isinstance(rate, numbers)
    )
    if not points:
        return None
    return Curve(
        float(data.get("capacity_bytes") or 0), float(data.get("requests") or 0), tuple(points)
    )


def _found(samples: list[MetricSample]) -> tuple[float | None, float | None]:
    """(asked for, found). vLLM's plug-in first asks whether a block is there, and gets only those
    that are: its GETs alone would look like all hits. Simulated workers GET without asking."""
    lookups = total(samples, "emberline_l2_lookup_blocks_total")
    if lookups:
        return lookups, total(samples, "emberline_l2_hit_blocks_total")
    hits = total(samples, _OPERATIONS, op="get", result="hit")
    misses = total(samples, _OPERATIONS, op="get", result="miss")
    if hits is None and misses is None:
        return lookups, total(samples, "emberline_l2_hit_blocks_total")
    return (hits or 0) + (misses or 0), hits or 0


def ask(admin_url: str) -> NodeStats | None:
    """The node's numbers now, or None when it does not answer in time."""
    body = _get(f"{admin_url}/metrics")
    if body is None:
        return None
    stats = read(body.decode(errors="replace"))
    namespaces = read_namespaces(_json(_get(f"{admin_url}/namespaces")))
    curve = read_curve(_json(_get(f"{admin_url}/curve")))
    return replace(stats, namespaces=namespaces, curve=curve)


def _get(url: str) -> bytes | None:
    try:
        status, body = fetch("GET", url, deadline_s=DEADLINE_S, max_bytes=_MAX_BYTES)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return body if status == 200 else None


def _json(body: bytes | None) -> Any:
    try:
        return json.loads(body) if body is not None else None
    except ValueError:
        return None
