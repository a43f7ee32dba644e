"""Kubernetes workload of an endpoint's routers: pods and related objects. Pure.

Routers discover workers with a service account limited to that; key hashes are in a Secret; one
router may be down while another serves.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from console.core.state_store import StateStore
from console.provisioners.base import FileSpec, Probe, WorkloadSpec
from console.provisioners.kubernetes.rendering.values import resource_list
from console.provisioners.pods import Around, Autoscale, Exposure, Peer, Pod, Scrape
from endpoints.lifecycle.components import EndpointFacts
from endpoints.spec.endpoint_spec import GIB, EndpointSpec
from endpoints.workload.worker_pod import CONSOLE, PROMETHEUS
from routing.deployment.compiler import (
    ADMIN_PORT,
    CONFIG_FILE,
    HASH_KEY_FILE,
    HTTP_PORT,
    KEYS_FILE,
    STORE_CA_FILE,
    as_text,
    hash_key,
    state_store,
    uses_installed,
    worker_service,
)
from routing.engine.config.state_store import PASSWORD_ENV

_SECRET = (KEYS_FILE, HASH_KEY_FILE)
SERVICE_PORT = 8080
"""Port of the routers' Service and of their pods."""
# Seconds for load balancers and kube-proxy to notice a terminating router.
_DRAIN_S = 10
_STARTUP_S = 120
_CPU_PERCENT = 70
"""Target utilization of the single core a router can use."""


def to_pods(
    spec: WorkloadSpec,
    endpoint: EndpointFacts,
    image: str,
    secrets_folder: str = "",
    installed: StateStore | None = None,
) -> WorkloadSpec:
    """`secrets_folder`: the only one from which the password of an endpoint's own store may be
    read. `installed`: the installation's store.
    """
    wanted, router = endpoint.spec, endpoint.spec.router
    shared = installed if uses_installed(wanted, installed) else None
    store = state_store(wanted, installed)
    password = shared.password_file if shared is not None else wanted.cache.l2.password_file
    secret = {PASSWORD_ENV: password} if password and store else {}
    files = tuple(replace(one, secret=one.path in _SECRET) for one in spec.live_files)
    if shared is not None and "ca" in store:
        files = (FileSpec(STORE_CA_FILE, shared.ca), *files)
    return replace(
        spec,
        argv=("python3", *spec.argv[1:]),
        live_files=files,
        image=image,
        replicas=router.replicas,
        secret_env=secret,
        # The installation's own file was named by its administrator.
        secrets_within={} if shared is not None else dict.fromkeys(secret, secrets_folder),
        cpus=router.cpus,
        memory_bytes=int(router.memory_gib * GIB),
        pod=Pod(
            resources=resource_list(router.cpu_limit, int(router.memory_limit_gib * GIB)),
            startup_s=_STARTUP_S,
            drain_s=_DRAIN_S,
            tolerations=tuple(wanted.placement.tolerations),
            priority_class=wanted.placement.priority_class,
            image_pull_secrets=wanted.pod.pull_secrets,
        ),
        around=_related_objects(endpoint),
    )


def _related_objects(endpoint: EndpointFacts) -> Around:
    wanted = endpoint.spec
    monitoring = wanted.monitoring
    scraped = (Scrape(ADMIN_PORT, interval_s=monitoring.interval_s),)
    return Around(
        # The data port is protected by keys, the admin port by nothing else.
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
    # Kubernetes scales on percent of the request; the scarce resource is the core, or the limit
    # below it.
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


# Slightly above the router's 30 s drain, so that it is never killed first.
_STOP_GRACE_S = 35
_MEMORY_BYTES = 512 * 1024**2


def workload_name(endpoint: str) -> str:
    return f"{endpoint}-router"


def router_spec(
    endpoint: str, config: dict[str, Any], keys: dict[str, Any], python: str = sys.executable
) -> WorkloadSpec:
    return WorkloadSpec(
        owner=f"endpoint/{endpoint}",
        name=workload_name(endpoint),
        role="router",
        argv=(python, "-m", "routing.engine", "--config", f"{{dir}}/{CONFIG_FILE}"),
        ports=(HTTP_PORT, ADMIN_PORT),
        # Tests the router only, not workers: a paused endpoint's router is healthy.
        probe=Probe(path="/healthz", port=ADMIN_PORT),
        # Keys first: the router reads them with the configuration.
        live_files=(
            FileSpec(KEYS_FILE, as_text(keys)),
            FileSpec(HASH_KEY_FILE, hash_key(keys)),
            FileSpec(CONFIG_FILE, as_text({**config, "hash_key_file": HASH_KEY_FILE})),
        ),
        cpus=1.0,
        memory_bytes=_MEMORY_BYTES,
        stop_grace_s=_STOP_GRACE_S,
    )
