"""Admission: namespaces, names, quotas, pod security and immutable fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from tests.support.kube.fake.quantity import number, requests
from tests.support.kube.fake.refusals import ApiError, invalid
from tests.support.kube.fake.selectors import by_object
from tests.support.kube.fake.store import Resource, Store

Object = dict[str, Any]
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
FROM_TEMPLATE = ("Deployment", "ReplicaSet", "StatefulSet")
STATEFUL_MAY = {
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
}  # fmt: skip
STATEFUL_NO = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


def admit(store: Store, resource: Resource, data: Object, before: Object | None) -> None:
    kind, name = resource.kind, data["metadata"]["name"]
    if before is None:
        _place(store, resource, data)
        special = kind in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
        limit = 63 if kind in ("Service", "Namespace") else 253
        if not special and (not NAME.fullmatch(name) or len(name) > limit):
            raise invalid(kind, name, "metadata.name", f'"{name}": a lowercase RFC 1123 subdomain')
        _quota(store, resource, data)
        if kind == "Pod":
            _security(store, data)
            _account(store, data)
    else:
        _unchanged(kind, name, data, before)
    if kind in FROM_TEMPLATE:
        labels = data["spec"]["template"].get("metadata", {}).get("labels", {})
        if not by_object(data["spec"].get("selector"), labels):
            field = "spec.template.metadata.labels"
            raise invalid(kind, name, field, "`selector` does not match template `labels`")
    for label, value in data["metadata"].get("labels", {}).items():
        if not re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value):
            field = "metadata.labels"
            raise invalid(kind, name, field, f'{label}="{value}": not a valid label value')


def _place(store: Store, resource: Resource, data: Object) -> None:
    if not resource.namespaced:
        return
    name = data["metadata"]["namespace"]
    space = store.find("Namespace", "", name)
    if space is None:
        raise ApiError(404, f'namespaces "{name}" not found', kind="namespaces", name=name)
    if space["metadata"].get("deletionTimestamp"):
        cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being deleted"}
        text = (
            f'{resource.plural} "{data["metadata"]["name"]}" is forbidden: unable to create new '
            f"content in namespace {name} because it is being terminated"
        )
        raise ApiError(403, text, causes=[cause], kind=resource.plural)


def _unchanged(kind: str, name: str, data: Object, before: Object) -> None:
    old, new = before.get("spec"), data.get("spec")
    if kind in FROM_TEMPLATE and old["selector"] != new["selector"]:
        raise invalid(kind, name, "spec.selector", f"{new['selector']}: field is immutable")
    if kind == "StatefulSet":
        changed = {key for key in {*old, *new} if old.get(key) != new.get(key)}
        if changed - STATEFUL_MAY:
            raise invalid(kind, name, "spec", STATEFUL_NO, "Forbidden")
    if kind == "Service" and old.get("clusterIP") and new.get("clusterIP") != old["clusterIP"]:
        raise invalid(kind, name, "spec.clusterIPs[0]", "may not change once set")
    parts = ("data", "binaryData", "immutable") if kind in ("ConfigMap", "Secret") else ()
    if before.get("immutable") and any(before.get(part) != data.get(part) for part in parts):
        text = "field is immutable when `immutable` is set"
        raise invalid(kind, name, "data", text, "Forbidden")
    if kind in ("RoleBinding", "ClusterRoleBinding") and before["roleRef"] != data["roleRef"]:
        raise invalid(kind, name, "roleRef", f"{data['roleRef']}: cannot change roleRef")
    if kind == "Job" and old["template"] != new["template"]:
        raise invalid(kind, name, "spec.template", "field is immutable")
    if kind == "PersistentVolumeClaim" and old.get("accessModes") != new.get("accessModes"):
        raise invalid(kind, name, "spec", "spec is immutable after creation", "Forbidden")


def _quota(store: Store, resource: Resource, data: Object) -> None:
    if not resource.namespaced:
        return
    namespace, name = data["metadata"]["namespace"], data["metadata"]["name"]
    for quota in store.list("ResourceQuota", namespace):
        hard = {key: number(value) for key, value in quota["spec"].get("hard", {}).items()}
        asks, used = _charge(resource, data), _used(store, resource, namespace)
        over = [
            (key, asks[key], used.get(key, Decimal(0)), hard[key])
            for key in sorted(set(hard) & set(asks))
            if used.get(key, Decimal(0)) + asks[key] > hard[key]
        ]
        if over:
            words = [",".join(f"{item[0]}={item[n]:f}" for item in over) for n in (1, 2, 3)]
            raise ApiError(
                403,
                f'{resource.plural} "{name}" is forbidden: exceeded quota: '
                f"{quota['metadata']['name']}, requested: {words[0]}, used: {words[1]}, "
                f"limited: {words[2]}",
                kind=resource.plural,
                name=name,
            )


def used_of(store: Store, resources: Iterable[Resource], quota: Object) -> dict[str, str]:
    """Return a quota's current usage, as in its status."""
    total: dict[str, Decimal] = {}
    for resource in resources:
        total |= _used(store, resource, quota["metadata"]["namespace"])
    return {key: f"{total.get(key, Decimal(0)):f}" for key in quota["spec"].get("hard", {})}


def _used(store: Store, resource: Resource, namespace: str) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for item in _charged(store, resource, namespace):
        for key, value in _charge(resource, item).items():
            total[key] = total.get(key, Decimal(0)) + value
    return total


def _charged(store: Store, resource: Resource, namespace: str) -> Iterator[Object]:
    for item in store.list(resource.kind, namespace):
        if item.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            yield item


def _charge(resource: Resource, data: Object) -> dict[str, Decimal]:
    full = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    found = {f"count/{full}": Decimal(1), resource.plural: Decimal(1)}
    if resource.kind == "Pod":
        for key, value in requests(data["spec"]).items():
            found |= {f"requests.{key}": value, key: value}
    return found


def _security(store: Store, pod: Object) -> None:
    metadata = pod["metadata"]
    space = store.find("Namespace", "", metadata["namespace"]) or {"metadata": {}}
    level = space["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce", "")
    wrong = sorted(set(_weak(pod["spec"], level)))
    if wrong:
        raise ApiError(
            403,
            f'pods "{metadata["name"]}" is forbidden: violates PodSecurity "{level}:latest": '
            + ", ".join(wrong),
            kind="pods",
            name=metadata["name"],
        )


def _weak(spec: Object, level: str) -> Iterator[str]:
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    if level in ("baseline", "restricted"):
        if any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield "host namespaces"
        if any("hostPath" in volume for volume in spec.get("volumes", ())):
            yield "hostPath volumes"
        if any(c.get("securityContext", {}).get("privileged") for c in containers):
            yield "privileged"
    if level != "restricted":
        return
    around = spec.get("securityContext", {})
    for container in containers:
        own = {**around, **container.get("securityContext", {})}
        if own.get("allowPrivilegeEscalation") is not False:
            yield "allowPrivilegeEscalation != false"
        if "ALL" not in own.get("capabilities", {}).get("drop", ()):
            yield "unrestricted capabilities"
        if own.get("runAsNonRoot") is not True:
            yield "runAsNonRoot != true"
        if own.get("runAsUser") == 0:
            yield "runAsUser=0"
        if own.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield "seccompProfile"


def _account(store: Store, pod: Object) -> None:
    """Mount the service account token unless disabled."""
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    name = spec["serviceAccountName"]
    account = store.find("ServiceAccount", namespace, name)
    if account is None:
        text = f'error looking up service account {namespace}/{name}: serviceaccount "{name}"'
        raise ApiError(403, f'pods "{pod["metadata"]["name"]}" is forbidden: {text} not found')
    value = account.get("automountServiceAccountToken", True)
    if not spec.get("automountServiceAccountToken", value):
        return
    volume = "kube-api-access-fake0"
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {
            "apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]  # fmt: skip
    mount = {"name": volume, "mountPath": TOKENS, "readOnly": True}
    spec["volumes"] = [
        *spec.get("volumes", ()),
        {"name": volume, "projected": {"sources": sources}},
    ]
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        mounts = container.get("volumeMounts", [])
        if all(item["mountPath"] != TOKENS for item in mounts):
            container["volumeMounts"] = [*mounts, mount]
