"""The file in which workers find a tier's nodes: one URL a line, read again when it changes.

Promises that a reader sees an old list or a new one, never half of one, and that a list which is
as it was is not touched. A node is known by its name, so that it keeps its keys when its port
changes. Must not know rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from console.provisioners.base import ReplicaObservation


def list_url(path: Path, copies: int) -> str:
    """What a worker is told (see cachetier.client.node_list)."""
    suffix = "" if copies == 1 else f"?replicas={copies}"
    return f"file://{path}{suffix}"


def lines(replicas: Iterable[ReplicaObservation], port: str, wanted: int) -> list[str]:
    """The nodes that belong to the tier and have an address, ready or not: one that restarts keeps
    its place, since moving its keys away and back would cost more than missing them."""
    return [
        f"redis://{urlsplit(replica.urls[port]).netloc}/0?name={replica.name}"
        for replica in sorted(replicas, key=lambda one: one.index)
        if replica.index < wanted and replica.urls.get(port)
    ]


def write(path: Path, found: list[str]) -> bool:
    """Whether the file had to be changed."""
    text = "".join(f"{line}\n" for line in found)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return True
