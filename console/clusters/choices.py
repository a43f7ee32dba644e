"""Enumerations of cluster fields."""

from __future__ import annotations

from enum import StrEnum


class Reach(StrEnum):
    """Whether the console can connect to pod addresses."""

    PODS = "pods"  # runs in the cluster, or in a network with routes to pods
    API = "api"  # reaches the API server only


REACHES = tuple(Reach)


class ClusterPhase(StrEnum):
    PENDING = "Pending"  # not checked yet
    READY = "Ready"  # reachable, required rights granted
    DEGRADED = "Degraded"  # reachable, but a required right is missing
    FAILED = "Failed"  # unreachable, or authentication rejected


class ClusterReason(StrEnum):
    ANSWERS = "Answers"
    RIGHTS_MISSING = "RightsMissing"
    KEY_MISSING = "EncryptionKeyMissing"
    UNCLEAR = "ClusterUnclear"  # unexpected response
