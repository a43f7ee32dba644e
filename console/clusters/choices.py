"""Words for what a cluster can be. Must not know Django."""

from __future__ import annotations

from enum import StrEnum

from console.provisioners.kubernetes.api.access import CONTEXT, IN_CLUSTER, KINDS, KUBECONFIG

__all__ = [
    "CONTEXT",
    "IN_CLUSTER",
    "KINDS",
    "KUBECONFIG",
    "REACHES",
    "ClusterPhase",
    "ClusterReason",
    "Reach",
]


class Reach(StrEnum):
    """Whether the console can open connections to the addresses of pods."""

    PODS = "pods"  # it runs in the cluster, or in a network which routes to pods
    API = "api"  # it reaches the API server only


REACHES = tuple(Reach)


class ClusterPhase(StrEnum):
    PENDING = "Pending"  # not looked at yet
    READY = "Ready"  # it answers, and grants what is needed
    DEGRADED = "Degraded"  # it answers, but refuses something that is needed
    FAILED = "Failed"  # it does not answer, or refuses us


class ClusterReason(StrEnum):
    NOT_SEEN = "NotSeenYet"
    ANSWERS = "Answers"
    RIGHTS_MISSING = "RightsMissing"
    KEY_MISSING = "EncryptionKeyMissing"
    UNCLEAR = "ClusterUnclear"  # it answered, but not what was asked
