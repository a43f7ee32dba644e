"""JSON documents of the admin port, without keys or values.

Field names are a contract with the console.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from cachetier.engine.node import VERSION, Node

# Number of namespaces listed, largest first; metrics have the totals.
_MAX_LISTED = 200


def stats_json(node: Node) -> dict[str, Any]:
    counters, config = node.counters, node.config
    hits, lookups = counters.hit_rate()
    return {
        "version": VERSION,
        "pool": config.pool,
        "listen": str(config.listen),
        "uptime_s": round(time.monotonic() - node.started_at, 3),
        "draining": node.draining,
        "connections": len(node.sessions),
        "policy": config.policy,
        "policy_ghosts": node.policy.ghosts(),
        "quotas": dict(config.quotas),
        "refused_namespaces": None if node.admission is None else node.admission.shut(),
        "memory": asdict(node.store.usage()),
        "disk": None if node.disk is None else asdict(node.disk.usage()),
        "shm": {"name": node.store.arena.shm, "off": node.shm_off},
        "lookups": lookups,
        "hits": hits,
        "read_bytes": counters.read_bytes,
        "written_bytes": counters.written_bytes,
        "evicted": {reason.value: count for reason, count in counters.evicted.items()},
        "rejected": dict(counters.rejected),
        "integrity_failures": counters.integrity_failures,
        "handover": node.handover.facts() if node.handover is not None else None,
    }


def namespaces_json(node: Node) -> dict[str, Any]:
    spaces = node.census.spaces()
    listed = [
        {
            "namespace": name,
            "bytes": space.bytes,
            "blocks": space.blocks,
            "lookups": space.lookups,
            "hits": space.hits,
            "evicted": sum(space.evicted.values()),
            "evicted_by": {reason.value: count for reason, count in space.evicted.items()},
            "quota_bytes": node.config.quotas.get(name),
        }
        for name, space in spaces[:_MAX_LISTED]
    ]
    return {"namespaces": listed, "not_listed": max(len(spaces) - _MAX_LISTED, 0)}


def curve_json(node: Node) -> dict[str, Any]:
    """Return the LRU hit curve (`points`) beside the node's measured hit rate."""
    capacity = node.store.usage().capacity_bytes
    found = node.census.curve
    hits, lookups = node.counters.hit_rate()
    points = found.points(capacity) if found.lookups else []
    return {
        "capacity_bytes": capacity,
        "requests": found.lookups,
        "samples": found.samples,
        "sampled_share": found.sampled_share,
        "measured_hit_rate": hits / lookups if lookups else None,
        "knee_bytes": found.knee(capacity),
        "points": [
            {"bytes": point.capacity_bytes, "hit_rate": round(point.hit_ratio, 4)}
            for point in points
        ],
    }
