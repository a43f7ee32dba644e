"""What to change next so that the replicas of a workload become the wanted ones.

Promises pure decisions over observations, the same for every provisioner which starts processes
itself. Must not know how a replica is started or stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.provisioners.base import ReplicaObservation, ReplicaState


@dataclass(frozen=True, slots=True)
class Plan:
    """Indexes to create, to remove (highest first) and, at most one, to replace."""

    create: tuple[int, ...] = ()
    remove: tuple[int, ...] = ()
    replace: int | None = None


def plan(wanted: int, spec_hash: str, seen: Iterable[ReplicaObservation]) -> Plan:
    """Decide one step.

    A replica which is stopping keeps its index until it is gone: it is neither removed again nor
    created anew. An outdated replica which does not serve is replaced at once, since nothing is
    lost by it (and a rollout stuck on a bad spec could never be mended otherwise); an outdated
    one which serves waits until every other wanted replica serves.
    """
    present = {replica.index: replica for replica in seen}
    create = tuple(index for index in range(wanted) if index not in present)
    remove = tuple(
        index
        for index in sorted(present, reverse=True)
        if index >= wanted and present[index].state is not ReplicaState.STOPPING
    )
    return Plan(create, remove, _replace(wanted, spec_hash, present))


def _replace(wanted: int, spec_hash: str, present: dict[int, ReplicaObservation]) -> int | None:
    ready = {i for i in range(wanted) if _is(present.get(i), ReplicaState.READY)}
    outdated = [
        i
        for i in range(wanted)
        if i in present
        and present[i].spec_hash != spec_hash
        and present[i].state is not ReplicaState.STOPPING
    ]
    for index in outdated:
        if index not in ready:
            return index
    for index in outdated:
        if len(ready - {index}) == wanted - 1:
            return index
    return None


def _is(replica: ReplicaObservation | None, state: ReplicaState) -> bool:
    return replica is not None and replica.state is state
