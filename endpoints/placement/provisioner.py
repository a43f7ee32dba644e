"""Where an endpoint runs: the one place which turns its spec into a provisioner.

Promises a provisioner, or a ProvisionError which names the cluster that is not there; and that a
cluster is told which endpoints use it, so that it is not removed under them.
"""

from __future__ import annotations

from console.clusters import related_objects
from console.clusters import selectors as clusters
from console.provisioners.base import Provisioner
from endpoints import selectors
from endpoints.spec.endpoint_spec import EndpointSpec


def connect() -> None:
    """Called once, when the application is ready."""
    related_objects.register_usage(users)


def users() -> dict[str, list[str]]:
    """Endpoints by the cluster they are placed in, also those that are being deleted."""
    found: dict[str, list[str]] = {}
    default = clusters.default_cluster()
    for name, cluster in selectors.placed():
        if cluster or default:
            found.setdefault(cluster or default, []).append(f"endpoint {name}")
    return found


def provisioner_of(spec: EndpointSpec) -> Provisioner:
    return clusters.provisioner(spec.placement.cluster, spec.placement.namespace)
