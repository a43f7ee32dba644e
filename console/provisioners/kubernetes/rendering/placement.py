"""Node affinity, tolerations and topology spread of a pod. Pure."""

from __future__ import annotations

from typing import Any

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.api.capabilities import GPU_DOMAINS
from console.provisioners.kubernetes.rendering.names import pod_of, selector

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HIGHEST = 100
_SPREAD_OVER = ("topology.kubernetes.io/zone", "kubernetes.io/hostname")


def placement(spec: WorkloadSpec) -> dict[str, Any]:
    pod = pod_of(spec)
    out: dict[str, Any] = {}
    affinity = _node_affinity(spec)
    tolerations = [*_gpu_tolerations(spec), *(dict(entry) for entry in pod.tolerations)]
    if affinity:
        out["affinity"] = {"nodeAffinity": affinity}
    if pod.node_selector:
        out["nodeSelector"] = dict(pod.node_selector)
    if tolerations:
        out["tolerations"] = tolerations
    if pod.priority_class:
        out["priorityClassName"] = pod.priority_class
    if pod.scheduler:
        out["schedulerName"] = pod.scheduler
    return {**out, "topologySpreadConstraints": _spread(spec)}


def _node_affinity(spec: WorkloadSpec) -> dict[str, Any]:
    """Require one of the instance types and prefer earlier ones."""
    pod = pod_of(spec)
    affinity = {key: value for key, value in pod.node_affinity.items() if value}
    if not pod.instance_types:
        return affinity if affinity or spec.gpus else {_PREFERRED: _away_from_gpus()}
    one_of = {"key": INSTANCE_TYPE, "operator": "In", "values": list(pod.instance_types)}
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    # Terms are alternatives: each must require the type.
    required = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), one_of]}
        for term in terms
    ]
    out = {**affinity, _REQUIRED: {"nodeSelectorTerms": required}}
    if len(pod.instance_types) > 1:
        out[_PREFERRED] = [*_preferences(pod.instance_types), *affinity.get(_PREFERRED, ())]
    return out


def _away_from_gpus() -> list[dict[str, Any]]:
    """Avoid GPU nodes for pods without GPUs, which would keep an expensive machine from being
    scaled down. Such nodes are often untainted; the labels are from GPU feature discovery.
    """
    return [
        {
            "weight": 1,
            "preference": {
                "matchExpressions": [
                    {"key": f"{domain}/gpu.present", "operator": "DoesNotExist"}
                    for domain in GPU_DOMAINS
                ]
            },
        }
    ]


def _preferences(types: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return preferences with weights evenly spaced from the maximum to the minimum."""
    last = len(types) - 1
    return [
        {
            "weight": max(1, _HIGHEST - index * (_HIGHEST - 1) // last),
            "preference": {
                "matchExpressions": [{"key": INSTANCE_TYPE, "operator": "In", "values": [name]}]
            },
        }
        for index, name in enumerate(types)
    ]


def _gpu_tolerations(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """Tolerate the usual GPU taint, which not every cluster adds automatically."""
    domain = pod_of(spec).gpu_resource.partition("/")[0]
    if not spec.gpus or domain not in GPU_DOMAINS:
        return []
    return [{"key": f"{domain}/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def _spread(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """Spread pods evenly if possible. Each revision is counted separately, so new pods are not
    placed by the distribution of those they replace.
    """
    hash_label = "controller-revision-hash" if pod_of(spec).stable else "pod-template-hash"
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(spec.name)},
            "matchLabelKeys": [hash_label],
        }
        for key in _SPREAD_OVER
    ]
