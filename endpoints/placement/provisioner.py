"""Selection of an endpoint's provisioner, and the endpoints of a cluster, which block its removal.

An unknown cluster raises ProvisionError.
"""

from __future__ import annotations

from console.clusters import selectors as clusters
from console.core import uses
from console.provisioners.base import Provisioner
from endpoints import selectors
from endpoints.spec.endpoint_spec import EndpointSpec


def connect() -> None:
    uses.register("cluster", users)
    uses.register("namespace", namespaces)


def users() -> dict[str, list[str]]:
    users_by_cluster: dict[str, list[str]] = {}
    default = clusters.default_cluster()
    for name, cluster in selectors.endpoint_clusters():
        if cluster or default:
            users_by_cluster.setdefault(cluster or default, []).append(f"endpoint {name}")
    return users_by_cluster


def namespaces() -> dict[str, list[str]]:
    """Return the namespaces with endpoints by cluster; "" is its default namespace."""
    namespaces_used: dict[str, list[str]] = {}
    default = clusters.default_cluster()
    for cluster, namespace in selectors.endpoint_namespaces():
        if cluster or default:
            namespaces_used.setdefault(cluster or default, []).append(namespace)
    return namespaces_used


def provisioner_of(spec: EndpointSpec) -> Provisioner:
    return clusters.provisioner(spec.placement.cluster, spec.placement.namespace)
