"""Every kind of object a workload may be made of, and where the API keeps it.

Promises that whoever lists all of these by the label of a workload has seen whatever `render` has
ever made for it (and the disks and pods that came of it). Must not know a workload.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.provisioners.kubernetes.capabilities import (
    CERT_MANAGER,
    GATEWAY_API,
    KEDA,
    PROMETHEUS_OPERATOR,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """`capability` is "" where every cluster serves it. What is not `namespaced` has no owner that
    could take it along, and must be deleted by itself."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True
    capability: str = ""

    @property
    def path(self) -> str:
        """Of the API's group and version."""
        return (
            f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        )


_NETWORKING = "networking.k8s.io/v1"
_RBAC = "rbac.authorization.k8s.io/v1"
_MONITORING = "monitoring.coreos.com/v1"

KINDS = (
    Kind("v1", "ConfigMap", "configmaps"),
    Kind("v1", "Secret", "secrets"),
    Kind("v1", "ServiceAccount", "serviceaccounts"),
    Kind(_RBAC, "Role", "roles"),
    Kind(_RBAC, "RoleBinding", "rolebindings"),
    Kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Kind("v1", "Service", "services"),
    Kind(_NETWORKING, "NetworkPolicy", "networkpolicies"),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("apps/v1", "Deployment", "deployments"),
    Kind("apps/v1", "StatefulSet", "statefulsets"),
    Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Kind(_NETWORKING, "Ingress", "ingresses"),
    Kind("keda.sh/v1alpha1", "ScaledObject", "scaledobjects", capability=KEDA),
    Kind("cert-manager.io/v1", "Certificate", "certificates", capability=CERT_MANAGER),
    Kind("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes", capability=GATEWAY_API),
    Kind("gateway.networking.k8s.io/v1", "Gateway", "gateways", capability=GATEWAY_API),
    Kind(_MONITORING, "PodMonitor", "podmonitors", capability=PROMETHEUS_OPERATOR),
    Kind(_MONITORING, "PrometheusRule", "prometheusrules", capability=PROMETHEUS_OPERATOR),
)

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in KINDS}


def kind_of(api_version: str, kind: str) -> Kind:
    """KeyError for what we never make."""
    return _BY_NAME[api_version, kind]
