"""The Deployment or StatefulSet, and the template of its pods.

Promises restricted pod security, no token where none is needed, and that old pods leave only when
new ones are ready. Must not know what lies around the pods.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.rendering.autoscaler import autoscaled
from console.provisioners.kubernetes.rendering.containers import init_containers, main_container
from console.provisioners.kubernetes.rendering.names import (
    SPEC_HASH,
    around_of,
    base_labels,
    made,
    pod_of,
    pods_name,
    selector,
)
from console.provisioners.kubernetes.rendering.placement import placement
from console.provisioners.kubernetes.rendering.rights import account_name
from console.provisioners.kubernetes.rendering.target import Target
from console.provisioners.kubernetes.rendering.values import merged
from console.provisioners.kubernetes.rendering.volumes import (
    claim_templates,
    mounts,
    pod_volumes,
)

# The group by which a process reads its files and writes its disks, whoever its image says it is.
_GROUP = 65532
_MIN_READY_S = 2
_MANY = 8
"""From here on more than one new pod may come up at a time."""
_ROLLOUT_SLACK_S = 60


def workload(spec: WorkloadSpec, target: Target) -> dict[str, Any]:
    template = {
        "metadata": {
            "labels": {**base_labels(spec), SPEC_HASH: spec.spec_hash},
            "annotations": {SPEC_HASH: spec.spec_hash},
        },
        "spec": _pod_spec(spec),
    }
    body = {
        **_count(spec),
        "revisionHistoryLimit": 3,
        "minReadySeconds": _MIN_READY_S,
        "selector": {"matchLabels": selector(spec.name)},
        "template": template,
    }
    kind, more = _stateful(spec) if pod_of(spec).stable else _deployed(spec)
    return made(spec, target.namespace, "apps/v1", kind, spec.name, {"spec": merged(body, more)})


def _count(spec: WorkloadSpec) -> dict[str, Any]:
    return {} if autoscaled(spec) else {"replicas": spec.replicas}


def _deployed(spec: WorkloadSpec) -> tuple[str, dict[str, Any]]:
    autoscale = around_of(spec).autoscale
    most = max(spec.replicas, autoscale.maximum if autoscale else 0)
    rolling = {"maxUnavailable": 0, "maxSurge": "25%" if most > _MANY else 1}
    return "Deployment", {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "progressDeadlineSeconds": pod_of(spec).startup_s + _ROLLOUT_SLACK_S,
    }


def _stateful(spec: WorkloadSpec) -> tuple[str, dict[str, Any]]:
    """All start at once (they do not need each other), and are replaced one at a time."""
    disks = claim_templates(spec)
    retention = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    return "StatefulSet", {
        "serviceName": pods_name(spec.name),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": retention,
        **({"volumeClaimTemplates": disks} if disks else {}),
    }


def _pod_spec(spec: WorkloadSpec) -> dict[str, Any]:
    pod, around = pod_of(spec), around_of(spec)
    steps = init_containers(spec)
    account = account_name(spec)
    out: dict[str, Any] = {
        "automountServiceAccountToken": bool(around.watches_services),
        # Else a Service called `vllm` sets VLLM_PORT, which vLLM then believes.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": max(0, pod.drain_s) + spec.stop_grace_s,
        "securityContext": _security(spec),
        "containers": [main_container(spec, mounts(spec))],
        "volumes": pod_volumes(spec),
        **placement(spec),
    }
    if steps:
        out["initContainers"] = steps
    if account:
        out["serviceAccountName"] = account
    if pod.image_pull_secrets:
        out["imagePullSecrets"] = [{"name": name} for name in pod.image_pull_secrets]
    return out


def _security(spec: WorkloadSpec) -> dict[str, Any]:
    user = pod_of(spec).run_as_user
    return {
        "runAsNonRoot": True,
        **({"runAsUser": user, "runAsGroup": user} if user else {}),
        "fsGroup": _GROUP,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
