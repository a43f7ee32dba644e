"""Where an endpoint runs: the one place which turns its spec into a provisioner.

Promises a provisioner, or a ProvisionError which names the cluster that is not there.
"""

from __future__ import annotations

from console.clusters import selectors as clusters
from console.provisioners.base import Provisioner
from endpoints.spec import EndpointSpec


def provisioner_of(spec: EndpointSpec) -> Provisioner:
    return clusters.provisioner(spec.placement.cluster, spec.placement.namespace)
