"""An endpoint's routers on a cluster: pods, and what is around them. Pure; must not know Django.

Promises that routers find workers by themselves, with an account which may read just that; that
the keys' hashes lie in a Secret; and that one router may always go while another serves.
"""

from __future__ import annotations

from dataclasses import replace

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.rendering.values import limits
from console.provisioners.pods import Around, Autoscale, Exposure, Peer, Pod, Scrape
from endpoints.lifecycle.components import EndpointFacts
from endpoints.spec.endpoint_spec import GIB, EndpointSpec
from endpoints.workload.worker_pod import CONSOLE, PROMETHEUS
from routing.deployment.compiler import (
    ADMIN_PORT,
    HASH_KEY_FILE,
    HTTP_PORT,
    KEYS_FILE,
    worker_service,
)

_SECRET = (KEYS_FILE, HASH_KEY_FILE)
SERVICE_PORT = 8080
"""Of the routers' Service: the number their pods have, too."""
# Until every load balancer and kube-proxy has noticed that a router ends.
_DRAIN_S = 10
_STARTUP_S = 120
_CPU_PERCENT = 70
"""Of the one core that a router can use."""


def in_pods(spec: WorkloadSpec, endpoint: EndpointFacts, image: str) -> WorkloadSpec:
    wanted, router = endpoint.spec, endpoint.spec.router
    files = tuple(replace(one, secret=one.path in _SECRET) for one in spec.live_files)
    return replace(
        spec,
        argv=("python3", *spec.argv[1:]),
        live_files=files,
        image=image,
        replicas=router.replicas,
        cpus=router.cpus,
        memory_bytes=int(router.memory_gib * GIB),
        pod=Pod(
            resources=limits(router.cpu_limit, int(router.memory_limit_gib * GIB)),
            startup_s=_STARTUP_S,
            drain_s=_DRAIN_S,
            tolerations=tuple(wanted.placement.tolerations),
            priority_class=wanted.placement.priority_class,
            image_pull_secrets=wanted.pod.pull_secrets,
        ),
        around=_around(endpoint),
    )


def _around(endpoint: EndpointFacts) -> Around:
    wanted = endpoint.spec
    monitoring = wanted.monitoring
    scraped = (Scrape(ADMIN_PORT, interval_s=monitoring.interval_s),)
    return Around(
        # Keys are what keeps strangers out of the data port; nothing does at the other.
        reach={HTTP_PORT: (), ADMIN_PORT: (Peer(CONSOLE), Peer(PROMETHEUS))},
        watches_services=(worker_service(endpoint.name),),
        scrape=scraped if monitoring.enabled else (),
        autoscale=_autoscale(wanted),
        exposure=_exposure(wanted),
        annotations=dict(wanted.tags),
    )


def _autoscale(wanted: EndpointSpec) -> Autoscale | None:
    router = wanted.router
    if router.max_replicas <= router.replicas:
        return None
    # Kubernetes counts per cent of the request; what is scarce is the core, or the limit below it.
    most = min(1.0, router.cpu_limit or 1.0)
    percent = round(_CPU_PERCENT * most / router.cpus)
    return Autoscale(router.replicas, router.max_replicas, cpu_percent=max(1, percent))


def _exposure(wanted: EndpointSpec) -> Exposure | None:
    exposure = wanted.exposure
    if exposure.kind == "none":
        return None
    secret = exposure.tls_secret or f"{wanted.name}-tls"
    return Exposure(
        kind=exposure.kind,
        port=HTTP_PORT,
        host=exposure.host,
        class_name=exposure.class_name,
        gateway=exposure.gateway,
        tls_secret=secret if exposure.tls != "none" else "",
        issuer=exposure.issuer if exposure.tls == "cert-manager" else "",
        annotations={key: str(value) for key, value in exposure.annotations.items()},
    )
