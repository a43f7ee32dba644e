"""Rendering target (namespace and capabilities) and resolved secrets. No repr shows a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from console.provisioners.base import PartCondition, PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api.capabilities import (
    CAPABILITIES,
    GPU_DOMAINS,
    NETWORK_POLICY,
    PROMETHEUS_OPERATOR,
)
from console.provisioners.kubernetes.rendering.names import around_of, pod_of


@dataclass(frozen=True, slots=True)
class RenderingTarget:
    """A namespace and the names of its cluster's capabilities."""

    namespace: str
    capabilities: frozenset[str] = frozenset()

    def need(self, capability: str, wanted: str) -> None:
        """Raise if the cluster lacks `capability`; `wanted` names the feature that requires it."""
        if capability not in self.capabilities:
            requirement = CAPABILITIES[capability]
            raise PermanentError(
                "MissingCapability",
                f"{wanted} needs {requirement.label} in the cluster. {requirement.remedy}",
            )


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """Resolved contents: `env` by variable, `files` by path in the replica's folder."""

    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def declined(spec: WorkloadSpec, target: RenderingTarget) -> tuple[PartCondition, ...]:
    """Return conditions with `ready` None for features this cluster does not support."""
    return tuple(_declined_parts(spec, target))


def _declined_parts(spec: WorkloadSpec, target: RenderingTarget) -> Iterator[PartCondition]:
    around, can = around_of(spec), target.capabilities
    if around.scrape and PROMETHEUS_OPERATOR not in can:
        text = "Services carry scrape annotations instead of a monitor."
        yield _part("PodMonitor", "NoPrometheusOperator", text, PROMETHEUS_OPERATOR)
    if spec.around is not None and NETWORK_POLICY not in can:
        text = "Enforcement is unknown: pods may be able to reach every port."
        yield _part("NetworkPolicy", "NotEnforced", text, NETWORK_POLICY)
    gpu = GPU_DOMAINS.get(pod_of(spec).gpu_resource.partition("/")[0], "")
    if spec.gpus and gpu and gpu not in can:
        # Not an error: with node autoscaling, the nodes may not exist yet.
        text = "No node has such a GPU; pods stay pending until one joins."
        yield _part("Nodes", "NoGpuNode", text, gpu)


def _part(part: str, reason: str, text: str, capability: str) -> PartCondition:
    return PartCondition(part, None, reason, f"{text} {CAPABILITIES[capability].remedy}")
