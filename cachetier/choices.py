"""Words for what a cache tier can be; the same as an endpoint's, which this room must not know.

Must not know Django.
"""

from __future__ import annotations

from enum import StrEnum

DEFAULT_TIER = "default"
"""The tier which every endpoint with `tieredstorage` shares."""


class Phase(StrEnum):
    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    READY = "Ready"
    DEGRADED = "Degraded"
    DELETING = "Deleting"
    FAILED = "Failed"


class Reason(StrEnum):
    ACCEPTED = "Accepted"
    STARTING_NODES = "StartingNodes"
    REPLACING_NODES = "ReplacingNodes"
    SERVING = "Serving"
    NODE_RESTARTING = "NodeRestarting"
    STOPPING_NODES = "StoppingNodes"
    NO_TIER = "NoCacheTier"
