"""Distribution of blocks over a tier's nodes, and whether keys are changing nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from cachetier.client.placement import REBALANCING_S
from console.provisioners.base import ReplicaState

JOINED, RETURNED, LEAVING = "NodeJoined", "NodeReturned", "NodeLeaving"
# Nodes of a new tier do not start at the same instant.
_TOGETHER = timedelta(seconds=30)


class NodeRow(Protocol):
    """Observed node."""

    name: str
    index: int
    state: str
    started_at: datetime | None
    last_restart_at: datetime | None
    stats: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """Latest change of nodes whose keys are still looked up at their previous node until `until`;
    None while a node hands over its values.
    """

    node: str
    reason: str
    since: datetime | None
    until: datetime | None
    message: str


def share_of(blocks: float | None, every: Iterable[float | None]) -> float | None:
    """Return a node's share of all blocks, 0 to 1; None if unknown."""
    total = sum(share or 0.0 for share in every)
    return None if blocks is None or not total else blocks / total


def imbalance(every: Iterable[float | None]) -> float | None:
    """Return the largest number of blocks over the mean; None without two known nodes."""
    numbers = [number for number in every if number is not None]
    total = sum(numbers)
    return max(numbers) * len(numbers) / total if len(numbers) > 1 and total else None


def find_rebalancing(
    nodes: Sequence[NodeRow], node_count: int, now: datetime
) -> Rebalancing | None:
    """Return the change in progress, None if keys have been with their nodes for a while."""
    ready = [node for node in nodes if node.state == ReplicaState.READY]
    for node in ready:
        if node.index >= node_count:
            text = f"{node.name} is leaving and hands over its values to the other nodes."
            return Rebalancing(node.name, LEAVING, None, None, text)
    window = timedelta(seconds=REBALANCING_S)
    started = [(node.started_at, node) for node in ready if node.started_at is not None]
    first = min((started_at for started_at, _ in started), default=now)
    recent = [entry for entry in started if entry[0] > max(first + _TOGETHER, now - window)]
    if not recent:
        return None
    started_at, node = max(recent, key=lambda one: one[0])
    is_back = node.last_restart_at == started_at
    verb, reason = ("returned", RETURNED) if is_back else ("joined", JOINED)
    text = (
        f"{node.name} {verb}. For {REBALANCING_S / 60:.0f} min its blocks are also looked up at "
        "their previous node and move on first use."
    )
    return Rebalancing(node.name, reason, started_at, started_at + window, text)
