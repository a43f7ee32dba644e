"""Every object kind that a workload may create, and its API path.

Kinds not listed here are never applied, so listing these kinds by label proves that nothing is
left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from console.provisioners.base import PermanentError
from console.provisioners.kubernetes.api import capabilities as can


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """Kind of Kubernetes objects. `capability` is the one that provides the kind, "" if every
    cluster has it. A kind that is not `namespaced` cannot be owned by a namespaced object, so it is
    deleted separately.
    """

    api_version: str
    kind: str
    plural: str
    capability: str = ""
    namespaced: bool = True

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """Return the name as used in Roles: deployments.apps."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str, name: str = "") -> str:
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        within = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "")


CONFIG_MAP = ObjectKind("v1", "ConfigMap", "configmaps")
SECRET = ObjectKind("v1", "Secret", "secrets")
SERVICE = ObjectKind("v1", "Service", "services")
SERVICE_ACCOUNT = ObjectKind("v1", "ServiceAccount", "serviceaccounts")
ROLE = ObjectKind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = ObjectKind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
DISRUPTION_BUDGET = ObjectKind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = ObjectKind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
POD = ObjectKind("v1", "Pod", "pods")
EVENT = ObjectKind("v1", "Event", "events")
DEPLOYMENT = ObjectKind("apps/v1", "Deployment", "deployments")
STATEFUL_SET = ObjectKind("apps/v1", "StatefulSet", "statefulsets")
HPA = ObjectKind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
SCALED_OBJECT = ObjectKind("keda.sh/v1alpha1", "ScaledObject", "scaledobjects", can.KEDA)
INGRESS = ObjectKind("networking.k8s.io/v1", "Ingress", "ingresses")
HTTP_ROUTE = ObjectKind("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes", can.GATEWAY_API)
CERTIFICATE = ObjectKind("cert-manager.io/v1", "Certificate", "certificates", can.CERT_MANAGER)
GATEWAY = ObjectKind("gateway.networking.k8s.io/v1", "Gateway", "gateways", can.GATEWAY_API)
_MONITORING = "monitoring.coreos.com/v1"
POD_MONITOR = ObjectKind(_MONITORING, "PodMonitor", "podmonitors", can.PROMETHEUS_OPERATOR)
PROMETHEUS_RULE = ObjectKind(
    _MONITORING, "PrometheusRule", "prometheusrules", can.PROMETHEUS_OPERATOR
)
CLAIM = ObjectKind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
PERSISTENT_VOLUME = ObjectKind("v1", "PersistentVolume", "persistentvolumes", namespaced=False)
"""Only for existing storage; without a driver for it, the right to see the cluster's volumes is not
needed."""

APPLIED_KINDS = (
    CONFIG_MAP,
    SECRET,
    SERVICE,
    PERSISTENT_VOLUME,
    CLAIM,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    DEPLOYMENT,
    STATEFUL_SET,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    INGRESS,
    HPA,
    SCALED_OBJECT,
    GATEWAY,
    HTTP_ROUTE,
    CERTIFICATE,
    POD_MONITOR,
    PROMETHEUS_RULE,
)
"""Kinds that we apply."""

CREATED_KINDS = (POD, ObjectKind("apps/v1", "ReplicaSet", "replicasets"))
"""Kinds that the cluster creates, with our labels."""

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in APPLIED_KINDS}


def kind_of(body: Mapping[str, Any]) -> ObjectKind:
    """Return the kind of an object to be applied."""
    named = (str(body.get("apiVersion", "")), str(body.get("kind", "")))
    if named not in _BY_NAME:
        raise PermanentError("UnknownKind", f"Workloads cannot contain a {named[1]} of {named[0]}.")
    return _BY_NAME[named]


def possible_kinds(capabilities: Iterable[str]) -> tuple[ObjectKind, ...]:
    """Return every kind that may exist in a cluster with these capabilities."""
    there = {"", *capabilities}
    shares = not there.isdisjoint(can.CSI_DRIVERS.values())
    return tuple(
        kind
        for kind in (*CREATED_KINDS, *APPLIED_KINDS)
        if kind.capability in there and (kind.namespaced or shares)
    )
