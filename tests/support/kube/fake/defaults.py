"""Defaults that the server fills in, as far as they are read back."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]


def fill(kind: str, data: Object) -> None:
    if kind in _FILLERS:
        _FILLERS[kind](data)


def _default(data: Object, **values: Any) -> None:
    for name, value in values.items():
        data.setdefault(name, value)


def _pod_spec(spec: Object) -> None:
    _default(
        spec,
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30,
        securityContext={},
    )
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _default(
            container,
            imagePullPolicy="IfNotPresent",
            resources={},
            terminationMessagePath="/dev/termination-log",
            terminationMessagePolicy="File",
        )
        resources = container["resources"]
        if "limits" in resources:
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
        for port in container.get("ports", ()):
            _default(port, protocol="TCP")
        for name in ("livenessProbe", "readinessProbe", "startupProbe"):
            if name in container:
                probe = container[name]
                _default(probe, periodSeconds=10, timeoutSeconds=1, failureThreshold=3)
                _default(probe, successThreshold=1)


def _pod(data: Object) -> None:
    spec = data["spec"]
    _pod_spec(spec)
    _default(spec, serviceAccountName="default", enableServiceLinks=True)
    for reason in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{reason}"
        tolerations = spec.setdefault("tolerations", [])
        if not any(item.get("key") == key for item in tolerations):
            item = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**item, "tolerationSeconds": 1})


def _deployment(data: Object) -> None:
    spec = data["spec"]
    _default(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={})
    strategy = spec["strategy"]
    _default(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        _default(rolling, maxSurge="25%", maxUnavailable="25%")
    _pod_spec(spec["template"]["spec"])


def _stateful_set(data: Object) -> None:
    spec = data["spec"]
    _default(
        spec,
        replicas=1,
        revisionHistoryLimit=10,
        podManagementPolicy="OrderedReady",
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"},
    )
    for claim in spec.get("volumeClaimTemplates", ()):
        _default(claim, apiVersion="v1", kind="PersistentVolumeClaim", status={"phase": "Pending"})
        _default(claim["spec"], volumeMode="Filesystem")
    _pod_spec(spec["template"]["spec"])


def _replica_set(data: Object) -> None:
    _default(data["spec"], replicas=1)
    _pod_spec(data["spec"]["template"]["spec"])


def _job(data: Object) -> None:
    spec = data["spec"]
    _default(spec, completions=1, parallelism=1, backoffLimit=6, completionMode="NonIndexed")
    _pod_spec(spec["template"]["spec"])


def _service(data: Object) -> None:
    spec = data.setdefault("spec", {})
    _default(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")
    _default(spec, ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
        metadata = data["metadata"]
        name = f"{metadata.get('namespace')}/{metadata['name']}"
        digest = hashlib.sha256(name.encode()).digest()
        spec["clusterIP"] = f"10.76.{digest[0]}.{digest[1] % 250 + 1}"
    if "clusterIP" in spec:
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports", ()):
        _default(port, protocol="TCP", targetPort=port["port"])


def _claim(data: Object) -> None:
    _default(data["spec"], volumeMode="Filesystem")


def _secret(data: Object) -> None:
    _default(data, type="Opaque")
    for name, text in (data.pop("stringData", None) or {}).items():
        data.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()


def _crd(data: Object) -> None:
    names = data["spec"]["names"]
    _default(names, singular=names["kind"].lower(), listKind=f"{names['kind']}List")
    _default(data["spec"], conversion={"strategy": "None"})


_FILLERS: dict[str, Callable[[Object], None]] = {
    "Pod": _pod,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "ReplicaSet": _replica_set,
    "Job": _job,
    "Service": _service,
    "PersistentVolumeClaim": _claim,
    "Secret": _secret,
    "CustomResourceDefinition": _crd,
}
