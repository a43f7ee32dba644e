"""Statistics read from a node's admin port.

Reads have a deadline and return None on failure. A value the node does not report is None, not
zero.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import httpx

from console.core.fetch import fetch
from console.processkit.metrics import MetricSample, parse_samples, total

DEADLINE_S = 1.0
MAX_NAMESPACES = 20
_OPERATIONS = "emberline_l2_operations_total"
_MEMORY, _DISK = "memory", "nvme"
_MAX_BYTES = 2 * 1024**2


@dataclass(frozen=True, slots=True)
class Namespace:
    """Node contents of one model in one layout; counts since the node's start."""

    namespace: str
    bytes: float = 0
    blocks: float = 0
    lookups: float = 0
    hits: float = 0
    evicted: float = 0


@dataclass(frozen=True, slots=True)
class Curve:
    """Estimated hit rate by cache size, from sampled lookups."""

    capacity_bytes: float = 0
    requests: float = 0
    points: tuple[tuple[float, float], ...] = ()  # (bytes, hit rate), ascending


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """Bytes, and counts since the start; None where not reported."""

    used_bytes: float | None = None
    capacity_bytes: float | None = None
    disk_used_bytes: float | None = None
    disk_capacity_bytes: float | None = None
    blocks: float | None = None
    lookups: float | None = None
    hits: float | None = None
    evictions: float | None = None
    moved_in: float | None = None  # values moved to this node when nodes joined, left or returned


@dataclass(frozen=True, slots=True)
class NodeStats(NodeNumbers):
    """Statistics of one node."""

    connections: float | None = None
    namespaces: tuple[Namespace, ...] = field(default=())
    curve: Curve | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> NodeStats:
        """Parse the output of `as_json`; fields missing in data of older versions take defaults."""
        names = {field.name for field in fields(cls)}
        values = {name: value for name, value in data.items() if name in names}
        values["namespaces"] = tuple(
            Namespace(**namespace) for namespace in values.get("namespaces", ())
        )
        curve = values.get("curve")
        values["curve"] = _curve(curve) if isinstance(curve, dict) else None
        return cls(**values)


def parse_metrics(text: str) -> NodeStats:
    samples = parse_samples(text, "emberline_l2_")
    lookups, hits = _lookups_and_hits(samples)
    return NodeStats(
        used_bytes=total(samples, "emberline_l2_used_bytes", medium=_MEMORY),
        capacity_bytes=total(samples, "emberline_l2_capacity_bytes", medium=_MEMORY),
        disk_used_bytes=total(samples, "emberline_l2_used_bytes", medium=_DISK),
        disk_capacity_bytes=total(samples, "emberline_l2_capacity_bytes", medium=_DISK),
        blocks=total(samples, "emberline_l2_blocks"),
        lookups=lookups,
        hits=hits,
        evictions=total(samples, "emberline_l2_evicted_blocks_total"),
        moved_in=total(samples, "emberline_l2_moved_in_values_total"),
        connections=total(samples, "emberline_l2_connections"),
    )


def parse_namespaces(data: Any) -> tuple[Namespace, ...]:
    """Parse the largest namespaces of GET /namespaces; skip invalid entries."""
    namespaces = []
    listed = data.get("namespaces") if isinstance(data, dict) else None
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict) and isinstance(item.get("namespace"), str):
            numbers = {
                name: float(item.get(name) or 0)
                for name in ("bytes", "blocks", "lookups", "hits", "evicted")
                if isinstance(item.get(name) or 0, (int, float))
            }
            namespaces.append(Namespace(item["namespace"], **numbers))
    return tuple(sorted(namespaces, key=lambda one: -one.bytes)[:MAX_NAMESPACES])


def parse_curve(data: Any) -> Curve | None:
    """Parse GET /curve; None until the node has enough samples."""
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


def _lookups_and_hits(samples: list[MetricSample]) -> tuple[float | None, float | None]:
    """Return (lookups, hits). vLLM's plug-in uses EXISTS first and GETs only existing blocks, so
    its GETs alone would all be hits; simulated workers GET directly.
    """
    lookups = total(samples, "emberline_l2_lookup_blocks_total")
    if lookups:
        return lookups, total(samples, "emberline_l2_hit_blocks_total")
    hits = total(samples, _OPERATIONS, op="get", result="hit")
    misses = total(samples, _OPERATIONS, op="get", result="miss")
    if hits is None and misses is None:
        return lookups, total(samples, "emberline_l2_hit_blocks_total")
    return (hits or 0) + (misses or 0), hits or 0


def fetch_stats(admin_url: str) -> NodeStats | None:
    """Return the node's statistics, None if it does not respond in time."""
    body = _fetch(f"{admin_url}/metrics")
    if body is None:
        return None
    stats = parse_metrics(body.decode(errors="replace"))
    namespaces = parse_namespaces(_fetch_json(_fetch(f"{admin_url}/namespaces")))
    curve = parse_curve(_fetch_json(_fetch(f"{admin_url}/curve")))
    return replace(stats, namespaces=namespaces, curve=curve)


def _fetch(url: str) -> bytes | None:
    try:
        status, body = fetch("GET", url, deadline_s=DEADLINE_S, max_bytes=_MAX_BYTES)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return body if status == 200 else None


def _fetch_json(body: bytes | None) -> Any:
    try:
        return json.loads(body) if body is not None else None
    except ValueError:
        return None
