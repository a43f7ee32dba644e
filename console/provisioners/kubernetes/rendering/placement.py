"""Which nodes a pod may go to, and which it would like best. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.api.capabilities import GPU_DOMAINS
from console.provisioners.kubernetes.rendering.names import around_of, pod_of, selector

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HIGHEST = 100
_SPREAD_OVER = ("topology.kubernetes.io/zone", "kubernetes.io/hostname")


def placement(spec: WorkloadSpec) -> dict[str, Any]:
    """The part of a pod's spec which places it."""
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
    if around_of(spec).spread:
        out["topologySpreadConstraints"] = _spread(spec)
    return out


def _node_affinity(spec: WorkloadSpec) -> dict[str, Any]:
    """One of the instance types is required; the earlier in the list, the rather."""
    pod = pod_of(spec)
    given = {key: value for key, value in pod.node_affinity.items() if value}
    if not pod.instance_types:
        return given if given or spec.gpus else {_PREFERRED: _away_from_gpus()}
    one_of = {"key": INSTANCE_TYPE, "operator": "In", "values": list(pod.instance_types)}
    terms = (given.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    # Terms are alternatives: each has to ask for the type.
    required = [{**term, "matchExpressions": [*_expressions(term), one_of]} for term in terms]
    out = {**given, _REQUIRED: {"nodeSelectorTerms": required}}
    if len(pod.instance_types) > 1:
        out[_PREFERRED] = [*_preferences(pod.instance_types), *given.get(_PREFERRED, ())]
    return out


def _away_from_gpus() -> list[dict[str, Any]]:
    """A router on a node with GPUs keeps the dearest machine from being given back; such nodes
    are often not tainted. Their labels are the device plug-ins' feature discovery's."""
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


def _expressions(term: Mapping[str, Any]) -> list[Any]:
    return list(term.get("matchExpressions") or ())


def _preferences(types: tuple[str, ...]) -> list[dict[str, Any]]:
    """Weights fall evenly from the highest there is to the lowest."""
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
    """Nodes with GPUs keep others away by this taint; not every cluster adds the toleration."""
    domain = pod_of(spec).gpu_resource.partition("/")[0]
    if not spec.gpus or domain not in GPU_DOMAINS:
        return []
    return [{"key": f"{domain}/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def _spread(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """As even as it can be had; a pod that can only go to a crowded node still runs. Pods of one
    revision count among themselves, else a new one is judged by those it replaces."""
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
