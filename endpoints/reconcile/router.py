"""The router component of this installation."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from console.clusters import selectors as clusters
from console.provisioners.base import Provisioner
from endpoints.lifecycle.components import EndpointFacts
from endpoints.router.canary import selectors as canaries
from endpoints.router.component import RouterComponent


def _provisioner(endpoint: EndpointFacts) -> Provisioner:
    return clusters.provisioner(endpoint.spec.placement.cluster, endpoint.cluster_namespace)


@cache
def configured_router() -> RouterComponent:
    """Return the only one of this process: it remembers for how long a router's keys differ."""
    return RouterComponent(
        _provisioner,
        lambda: settings.EMBERLINE.engine_image,
        lambda: str(settings.EMBERLINE.l2_secrets),
        canary=canaries.router_settings,
        state_store=lambda: settings.EMBERLINE.state_store,
        engine_path=lambda: settings.EMBERLINE.engine_path,
    )
