"""Autoscaler and PodDisruptionBudget of a workload.

At most one autoscaler: KEDA's if there are triggers, else the cluster's own; none while the
workload is paused.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.capabilities import KEDA, METRICS_SERVER
from console.provisioners.kubernetes.rendering.names import around_of, make_object, pod_of, selector
from console.provisioners.kubernetes.rendering.target import RenderingTarget
from console.provisioners.pods import Autoscale


def is_autoscaled(spec: WorkloadSpec) -> bool:
    """Return whether an autoscaler decides; a pause takes precedence."""
    return around_of(spec).autoscale is not None and spec.replicas > 0


def disruption_budgets(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    if spec.around is None:
        return []
    body = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": selector(spec.name)},
        # A pod that is not ready must not block draining of its node.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return [make_object(spec, target.namespace, kinds.DISRUPTION_BUDGET, {"spec": body})]


def autoscalers(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    scale = around_of(spec).autoscale
    if scale is None or not is_autoscaled(spec):
        return []
    _check(spec, target, scale)
    if scale.triggers:
        kind, body = kinds.SCALED_OBJECT, _scaled_object(spec, scale)
    else:
        kind, body = kinds.HPA, _by_cpu(spec, scale)
    return [make_object(spec, target.namespace, kind, {"spec": body})]


def _check(spec: WorkloadSpec, target: RenderingTarget, scale: Autoscale) -> None:
    if scale.minimum > scale.maximum or scale.maximum < 1:
        raise _bad(spec, f"{scale.minimum} to {scale.maximum} replicas is not a valid range")
    if scale.triggers:
        target.need(KEDA, f"Autoscaling {spec.name!r} by triggers")
        return
    target.need(METRICS_SERVER, f"Autoscaling {spec.name!r} by CPU")
    if not scale.cpu_percent:
        raise _bad(spec, "neither a trigger nor a CPU target is set: set one of them")
    if scale.minimum < 1:
        raise _bad(
            spec, "scaling to 0 needs a trigger (CPU use is undefined without pods): set at least 1"
        )
    requested = (pod_of(spec).resources.get("requests") or {}).get("cpu")
    if not spec.cpus and not requested:
        raise _bad(spec, "a CPU target is relative to the CPU request: set the CPU request")


def _bad(spec: WorkloadSpec, why: str) -> PermanentError:
    return PermanentError("BadSpec", f"{spec.name!r} cannot be autoscaled: {why}.")


def _scale_target(spec: WorkloadSpec) -> dict[str, str]:
    kind = kinds.STATEFUL_SET if pod_of(spec).stable else kinds.DEPLOYMENT
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": spec.name}


def _by_cpu(spec: WorkloadSpec, scale: Autoscale) -> dict[str, Any]:
    use = {"type": "Utilization", "averageUtilization": scale.cpu_percent}
    return {
        "scaleTargetRef": _scale_target(spec),
        "minReplicas": scale.minimum,
        "maxReplicas": scale.maximum,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": use}}],
        "behavior": _behavior(scale),
    }


def _scaled_object(spec: WorkloadSpec, scale: Autoscale) -> dict[str, Any]:
    triggers = [_trigger(dict(trigger)) for trigger in scale.triggers]
    if scale.cpu_percent:
        by_cpu = {"value": str(scale.cpu_percent)}
        triggers.append({"type": "cpu", "metricType": "Utilization", "metadata": by_cpu})
    return {
        "scaleTargetRef": _scale_target(spec),
        "pollingInterval": scale.polling_s,
        "cooldownPeriod": scale.cooldown_s,
        "initialCooldownPeriod": scale.initial_cooldown_s,
        "minReplicaCount": scale.minimum,
        "maxReplicaCount": scale.maximum,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(scale)}},
        "triggers": triggers,
    }


def _trigger(trigger: dict[str, Any]) -> dict[str, Any]:
    """Convert values to text: KEDA accepts nothing else, even for numbers and booleans."""
    metadata = trigger.get("metadata") or {}
    return {**trigger, "metadata": {str(key): _text(value) for key, value in metadata.items()}}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _behavior(scale: Autoscale) -> dict[str, Any]:
    return {
        "scaleUp": {"stabilizationWindowSeconds": scale.up_stabilization_s},
        "scaleDown": {"stabilizationWindowSeconds": scale.down_stabilization_s},
    }
