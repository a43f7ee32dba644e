"""Every kind of object that a workload may leave in a cluster, and where the API keeps it.

Promises that what is not listed here is never applied, so that a list of these kinds by label
proves that nothing is left. Must not know Kubernetes' client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from console.provisioners.base import PermanentError
from console.provisioners.kubernetes.api import capabilities as can


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """`capability`: which one brings the kind, "" where every cluster has it. What is not
    `namespaced` can have no owner in a namespace, which would take it along: it is deleted by
    itself."""

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
        """As people and Roles write it: deployments.apps."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str, name: str = "") -> str:
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        within = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "")


CONFIG_MAP = ObjectKind("v1", "ConfigMap", "configmaps")
SECRET = ObjectKind("v1", "Secret", "secrets")
SERVICE = ObjectKind("v1", "Service", "services")
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
CLAIM = ObjectKind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
PERSISTENT_VOLUME = ObjectKind("v1", "PersistentVolume", "persistentvolumes", namespaced=False)
"""Only for storage which is there already; where no driver of such storage is, nobody needs the
right to see the whole cluster's volumes."""

APPLIED = (
    CONFIG_MAP,
    SECRET,
    SERVICE,
    PERSISTENT_VOLUME,
    CLAIM,
    ObjectKind("v1", "ServiceAccount", "serviceaccounts"),
    ObjectKind("rbac.authorization.k8s.io/v1", "Role", "roles"),
    ObjectKind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    DEPLOYMENT,
    STATEFUL_SET,
    ObjectKind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ObjectKind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    INGRESS,
    HPA,
    SCALED_OBJECT,
    ObjectKind("keda.sh/v1alpha1", "TriggerAuthentication", "triggerauthentications", can.KEDA),
    GATEWAY,
    HTTP_ROUTE,
    CERTIFICATE,
    ObjectKind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors", can.PROMETHEUS_OPERATOR),
    ObjectKind(
        "monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors", can.PROMETHEUS_OPERATOR
    ),
    ObjectKind(
        "monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules", can.PROMETHEUS_OPERATOR
    ),
)
"""What we apply ourselves."""

MADE = (POD, ObjectKind("apps/v1", "ReplicaSet", "replicasets"))
"""What the cluster makes for us, under our labels."""

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in APPLIED}


def of(body: Mapping[str, Any]) -> ObjectKind:
    """The kind of an object that is to be applied."""
    named = (str(body.get("apiVersion", "")), str(body.get("kind", "")))
    if named not in _BY_NAME:
        raise PermanentError("UnknownKind", f"No workload may have a {named[1]} of {named[0]}.")
    return _BY_NAME[named]


def possible(capabilities: Iterable[str]) -> tuple[ObjectKind, ...]:
    """Every kind that may be there, in a cluster which can do that."""
    there = {"", *capabilities}
    shares = not there.isdisjoint(can.CSI_DRIVERS.values())
    return tuple(
        kind
        for kind in (*MADE, *APPLIED)
        if kind.capability in there and (kind.namespaced or shares)
    )
