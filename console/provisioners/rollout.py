"""Plan the next step from observed to desired replicas. Pure.

Shared by all provisioners that start processes themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.provisioners.base import ReplicaObservation, ReplicaState


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """Indexes to create, to remove (highest first) and, at most one, to replace."""

    create: tuple[int, ...] = ()
    remove: tuple[int, ...] = ()
    replace: int | None = None


def plan_step(wanted: int, spec_hash: str, seen: Iterable[ReplicaObservation]) -> RolloutPlan:
    """Plan one step.

    A stopping replica keeps its index until it is gone: it is neither removed again nor recreated.
    An outdated replica that certainly does not serve is replaced at once: nothing is lost, and a
    rollout stuck on a bad spec could not recover otherwise. One that serves, or may serve, waits
    until every other desired one does.
    """
    present = {replica.index: replica for replica in seen}
    create = tuple(index for index in range(wanted) if index not in present)
    remove = tuple(
        index
        for index in sorted(present, reverse=True)
        if index >= wanted and present[index].state is not ReplicaState.STOPPING
    )
    return RolloutPlan(create, remove, _replace(wanted, spec_hash, present))


def _replace(wanted: int, spec_hash: str, present: dict[int, ReplicaObservation]) -> int | None:
    mine = [present[index] for index in range(wanted) if index in present]
    ready = {replica.index for replica in mine if replica.state is ReplicaState.READY}
    outdated = [
        replica
        for replica in mine
        if replica.spec_hash != spec_hash and replica.state is not ReplicaState.STOPPING
    ]
    for replica in outdated:
        if replica.state not in (ReplicaState.READY, ReplicaState.UNKNOWN):
            return replica.index
    for replica in outdated:
        if len(ready - {replica.index}) == wanted - 1:
            return replica.index
    # Hung replicas would wait for each other: replace one while the rest appears to serve.
    steady = ready | {r.index for r in mine if r.state is ReplicaState.UNKNOWN}
    hung = [r.index for r in outdated if r.state is ReplicaState.UNKNOWN]
    return hung[0] if hung and len(steady) == wanted else None
