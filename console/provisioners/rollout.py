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
    created anew. An outdated replica which surely does not serve is replaced at once, since
    nothing is lost by it (and a rollout stuck on a bad spec could never be mended otherwise);
    an outdated one which serves, or may serve, waits until every other wanted one does.
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
    # Hung ones cannot wait for each other: one of them may go while the rest seems to serve.
    steady = ready | {r.index for r in mine if r.state is ReplicaState.UNKNOWN}
    hung = [r.index for r in outdated if r.state is ReplicaState.UNKNOWN]
    return hung[0] if hung and len(steady) == wanted else None
