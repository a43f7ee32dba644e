"""Tier phase from observed nodes. Pure.

desired and observed                               phase
deletion requested                                 Deleting
every node ready, with the desired spec            Ready
was ready before, now a node is not                Degraded  (workers recompute missing blocks)
otherwise                                          Provisioning
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from console.provisioners.base import Observation, ReplicaState

DEFAULT_TIER = "default"
"""Tier shared by all endpoints with `tieredstorage`."""


class TierPhase(StrEnum):
    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    READY = "Ready"
    DEGRADED = "Degraded"
    DELETING = "Deleting"
    FAILED = "Failed"


class TierReason(StrEnum):
    ACCEPTED = "Accepted"
    STARTING_NODES = "StartingNodes"
    REPLACING_NODES = "ReplacingNodes"
    SERVING = "Serving"
    NODE_RESTARTING = "NodeRestarting"
    STOPPING_NODES = "StoppingNodes"
    NO_TIER = "NoCacheTier"


@dataclass(frozen=True, slots=True)
class TierVerdict:
    phase: TierPhase
    reason: str
    message: str


def judge_tier(
    seen: Observation, spec_hash: str, *, wanted: int, was_ready: bool, deleting: bool
) -> TierVerdict:
    """Return the tier's phase. `was_ready`: the tier was ready at any earlier time."""
    if deleting:
        left = len(seen.replicas)
        return TierVerdict(TierPhase.DELETING, TierReason.STOPPING_NODES, f"{left} left to stop.")
    current = len(seen.ready(spec_hash))
    if current >= wanted:
        return TierVerdict(TierPhase.READY, TierReason.SERVING, "")
    phase = TierPhase.DEGRADED if was_ready else TierPhase.PROVISIONING
    broken = [r for r in seen.replicas if r.state in (ReplicaState.BACKOFF, ReplicaState.EXITED)]
    outdated = [r for r in seen.replicas if r.spec_hash != spec_hash]
    if outdated:
        text = f"{outdated[0].name} is restarting with its new settings."
        return TierVerdict(phase, TierReason.REPLACING_NODES, text)
    if broken:
        text = f"{broken[0].name} exited and is being restarted. {broken[0].message}".strip()
        return TierVerdict(phase, TierReason.NODE_RESTARTING, text)
    return TierVerdict(phase, TierReason.STARTING_NODES, f"{current} of {wanted} ready.")
