"""How far a worker has come on its way to serving, from what a platform says of it.

Promises a stage for whatever is said; a platform that says little gives the later of two. Must not
know Django or Kubernetes.
"""

from __future__ import annotations

from console.provisioners.base import ReplicaObservation, ReplicaState
from endpoints.choices import Stage

_OVER = (ReplicaState.STOPPING, ReplicaState.EXITED)
_FETCHING = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ImagePulling"})
_FETCHING_TOO = frozenset({"ErrImageNeverPull", "RegistryUnavailable", "ContainerCreating"})
_PREPARING = ("Init", "PodInitializing")


def stage(seen: ReplicaObservation) -> Stage:
    if seen.state in _OVER:
        return Stage.LEAVING
    if seen.state is ReplicaState.READY:
        return Stage.READY
    if seen.started_at or seen.restarts:
        return Stage.LOADING
    if not seen.node:
        return Stage.SCHEDULING
    if seen.reason.startswith(_PREPARING):
        return Stage.PREPARING
    if seen.reason in _FETCHING | _FETCHING_TOO:
        return Stage.PULLING
    return Stage.PREPARING if seen.state is ReplicaState.BACKOFF else Stage.PULLING
