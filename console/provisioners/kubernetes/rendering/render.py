"""Render a workload's Kubernetes objects in the order of application.

Pure: the same spec, target and secrets give the same objects, each with its lookup labels. The
first is the anchor; `anchor.owned` sets it as owner of the others once its uid is known. Specs
that the cluster does not support are rejected here (`MissingCapability`), before any change.

Notes for `apply`: `declined` lists features the cluster goes without. Delete an autoscaler that
is no longer rendered before applying another (KEDA rejects a second one for a target).
`spec.replicas` is omitted while an autoscaler decides. A field that leaves our apply and has no
other owner returns to its default (one replica), so hand the current number to another field
manager before enabling autoscaling.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.rendering.anchor import anchor
from console.provisioners.kubernetes.rendering.autoscaler import (
    autoscalers,
    disruption_budgets,
    is_autoscaled,
)
from console.provisioners.kubernetes.rendering.containers import init_containers, main_container
from console.provisioners.kubernetes.rendering.exposure import exposure_objects
from console.provisioners.kubernetes.rendering.files import file_objects
from console.provisioners.kubernetes.rendering.monitors import monitors
from console.provisioners.kubernetes.rendering.names import (
    SPEC_HASH,
    around_of,
    base_labels,
    check_names,
    make_object,
    pod_of,
    pods_name,
    selector,
)
from console.provisioners.kubernetes.rendering.network import network_policies, services
from console.provisioners.kubernetes.rendering.placement import placement
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets
from console.provisioners.kubernetes.rendering.values import merge
from console.provisioners.kubernetes.rendering.volumes import (
    claim_templates,
    pod_volumes,
    share_objects,
    volume_mounts,
)
from console.provisioners.specs import check_spec

# Group for reading files and writing disks, whatever user the image sets.
_GROUP = 65532
_MIN_READY_S = 2
_MANY = 8
"""Replica count above which several new pods may start at once."""
_ROLLOUT_SLACK_S = 60


def workload(spec: WorkloadSpec, target: RenderingTarget) -> dict[str, Any]:
    template = {
        "metadata": {
            "labels": {**base_labels(spec), SPEC_HASH: spec.spec_hash},
            "annotations": {SPEC_HASH: spec.spec_hash},
        },
        "spec": _pod_spec(spec),
    }
    body = {
        **({} if is_autoscaled(spec) else {"replicas": spec.replicas}),
        "revisionHistoryLimit": 3,
        "minReadySeconds": _MIN_READY_S,
        "selector": {"matchLabels": selector(spec.name)},
        "template": template,
    }
    kind, more = _stateful(spec) if pod_of(spec).stable else _deployed(spec)
    return make_object(spec, target.namespace, kind, {"spec": merge(body, more)})


def _deployed(spec: WorkloadSpec) -> tuple[kinds.ObjectKind, dict[str, Any]]:
    autoscale = around_of(spec).autoscale
    most = max(spec.replicas, autoscale.maximum if autoscale else 0)
    rolling = {"maxUnavailable": 0, "maxSurge": "25%" if most > _MANY else 1}
    return kinds.DEPLOYMENT, {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "progressDeadlineSeconds": pod_of(spec).startup_s + _ROLLOUT_SLACK_S,
    }


def _stateful(spec: WorkloadSpec) -> tuple[kinds.ObjectKind, dict[str, Any]]:
    """Render a StatefulSet: parallel start, replacement one at a time."""
    disks = claim_templates(spec)
    retention = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    return kinds.STATEFUL_SET, {
        "serviceName": pods_name(spec.name),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": retention,
        **({"volumeClaimTemplates": disks} if disks else {}),
    }


def _pod_spec(spec: WorkloadSpec) -> dict[str, Any]:
    pod, around = pod_of(spec), around_of(spec)
    steps = init_containers(spec)
    account = _account_name(spec)
    out: dict[str, Any] = {
        "automountServiceAccountToken": bool(around.watches_services),
        # Otherwise a Service named `vllm` sets VLLM_PORT, which vLLM reads.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": max(0, pod.drain_s) + spec.stop_grace_s,
        "securityContext": _security(spec),
        "containers": [main_container(spec, volume_mounts(spec))],
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


def _account_name(spec: WorkloadSpec) -> str:
    """Return the account, "" for the namespace's default one, whose token is not mounted."""
    own = spec.name if around_of(spec).watches_services else ""
    return pod_of(spec).service_account or own


def _rights(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    """Return ServiceAccount, Role and RoleBinding of a process that watches Services.

    It may read EndpointSlices in its own namespace: they have generated names and are found by
    label, which a Role cannot restrict.
    """
    watched = around_of(spec).watches_services
    if not watched:
        return []
    for service in watched:
        _check_watched(spec, target, service)
    rule = {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["get", "list", "watch"],
    }
    subject = {"kind": "ServiceAccount", "name": _account_name(spec), "namespace": target.namespace}
    bound = {
        "roleRef": {"apiGroup": kinds.ROLE.group, "kind": "Role", "name": spec.name},
        "subjects": [subject],
    }
    out = [
        make_object(spec, target.namespace, kinds.ROLE, {"rules": [rule]}),
        make_object(spec, target.namespace, kinds.ROLE_BINDING, bound),
    ]
    if not pod_of(spec).service_account:
        body = {"automountServiceAccountToken": False}
        out.insert(0, make_object(spec, target.namespace, kinds.SERVICE_ACCOUNT, body))
    return out


def _check_watched(spec: WorkloadSpec, target: RenderingTarget, service: str) -> None:
    namespace, _, _ = service.rpartition("/")
    if namespace not in ("", target.namespace):
        raise PermanentError(
            "BadSpec",
            f"{spec.name!r} follows Service {service!r}, but can get rights only in its own "
            f"namespace {target.namespace!r}.",
        )


def render(
    spec: WorkloadSpec, target: RenderingTarget, secrets: Secrets
) -> tuple[dict[str, Any], ...]:
    check_spec(spec)
    check_names(spec)
    objects = [
        *file_objects(spec, target, secrets),
        *_rights(spec, target),
        *share_objects(spec, target),
        *services(spec, target),
        # Before the pods, so that the policy applies from their start.
        *network_policies(spec, target),
        *disruption_budgets(spec, target),
        workload(spec, target),
        *autoscalers(spec, target),
        *exposure_objects(spec, target),
        *monitors(spec, target),
    ]
    return (anchor(spec, target, objects), *objects)
