"""Where a workload goes and the secrets it takes along: all rendering knows beside a spec.

Promises that secrets are never shown by repr. Must not know Kubernetes' client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.provisioners.base import PermanentError
from console.provisioners.kubernetes.api.capabilities import CAPABILITIES


@dataclass(frozen=True, slots=True)
class Target:
    """A namespace of a cluster, and what that cluster can carry (`capabilities`' names)."""

    namespace: str
    capabilities: frozenset[str] = frozenset()

    def need(self, capability: str, wanted: str) -> None:
        """Refuse what this cluster cannot carry; `wanted` says what asks for it."""
        if capability not in self.capabilities:
            known = CAPABILITIES[capability]
            raise PermanentError(
                "MissingCapability", f"{wanted} needs {known.label} in the cluster. {known.remedy}"
            )


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """Contents, already read: `env` by variable, `files` by path in the replica's folder."""

    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
