"""Workload of an endpoint's routers: processes, or pods and related objects.

Routers discover workers with a service account limited to that; key hashes are in a Secret; one
router may be down while another serves. Reads the CA file of a state store, nothing else.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from console.core.state_store import StateStore
from console.provisioners.base import FileSpec, Probe, WorkloadSpec
from console.provisioners.kubernetes.rendering.values import resource_list
from console.provisioners.pods import Around, Autoscale, Exposure, Peer, Pod, Scrape
from console.provisioners.specs import read_secrets
from endpoints.lifecycle.components import EndpointFacts
from endpoints.router.compiler import (
    ADMIN_PORT,
    CONFIG_FILE,
    HASH_KEY_FILE,
    HTTP_PORT,
    KEYS_FILE,
    STORE_CA_FILE,
    as_text,
    hash_key,
    worker_service,
)
from endpoints.spec.endpoint_spec import GIB, EndpointSpec
from endpoints.spec.state_store import ChosenStore, StoreOrigin, choose_store, usable_store
from endpoints.workload.worker_pod import CONSOLE, PROMETHEUS
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
    """Return the workload for a cluster; see `_with_store` for the last two parameters."""
    endpoint_spec, router = endpoint.spec, endpoint.spec.router
    spec = _with_store(spec, choose_store(endpoint_spec, installed), secrets_folder)
    return replace(
        spec,
        argv=("python3", *spec.argv[1:]),
        live_files=tuple(
            replace(live_file, secret=live_file.path in _SECRET) for live_file in spec.live_files
        ),
        image=image,
        replicas=endpoint_spec.routers,
        cpus=router.cpus,
        memory_bytes=int(router.memory_gib * GIB),
        pod=Pod(
            resources=resource_list(router.cpu_limit, int(router.memory_limit_gib * GIB)),
            startup_s=_STARTUP_S,
            drain_s=_DRAIN_S,
            tolerations=tuple(endpoint_spec.placement.tolerations),
            priority_class=endpoint_spec.placement.priority_class,
            image_pull_secrets=endpoint_spec.pod.pull_secrets,
        ),
        around=_related_objects(endpoint),
    )


def to_processes(
    spec: WorkloadSpec,
    endpoint: EndpointFacts,
    secrets_folder: str = "",
    installed: StateStore | None = None,
    engine_path: str = "",
) -> WorkloadSpec:
    """Return the workload for this machine, where the routers share the endpoint's port and run
    from `engine_path`, a folder with the compiled router, if one is given.

    A single router has the store's password, too: adding and removing routers restarts none.
    """
    spec = _with_store(spec, usable_store(endpoint.spec, installed), secrets_folder)
    env = {"PYTHONPATH": engine_path} if engine_path else {}
    port = urlsplit(endpoint.url).port  # callers know it; a restored database does, too
    return replace(
        spec,
        replicas=endpoint.spec.routers,
        shared_ports=(HTTP_PORT,),
        env=env,
        preferred_ports={HTTP_PORT: port} if port else {},
    )


def _with_store(spec: WorkloadSpec, store: ChosenStore | None, secrets_folder: str) -> WorkloadSpec:
    """Add password and CA of a state store. `secrets_folder`: the only one from which files named
    by an endpoint may be read. Raise ProvisionError for an unreadable CA file.
    """
    if store is None:
        return spec
    ca, named = store.ca, store.ca_file
    if named:
        ca = read_secrets({STORE_CA_FILE: named}, {STORE_CA_FILE: secrets_folder})[STORE_CA_FILE]
    secret = {PASSWORD_ENV: store.password_file} if store.password_file else {}
    # The installation's own file was named by its administrator.
    own = store.origin is not StoreOrigin.INSTALLATION
    # First: the router reads it with the configuration.
    files = (FileSpec(STORE_CA_FILE, ca),) if ca else ()
    return replace(
        spec,
        live_files=(*files, *spec.live_files),
        secret_env=secret,
        secrets_within=dict.fromkeys(secret, secrets_folder) if own else {},
    )


def _related_objects(endpoint: EndpointFacts) -> Around:
    endpoint_spec = endpoint.spec
    monitoring = endpoint_spec.monitoring
    scraped = (Scrape(ADMIN_PORT, interval_s=monitoring.interval_s),)
    return Around(
        # The data port is protected by keys, the admin port by nothing else.
        reach={HTTP_PORT: (), ADMIN_PORT: (Peer(CONSOLE), Peer(PROMETHEUS))},
        watches_services=(worker_service(endpoint.name),),
        scrape=scraped if monitoring.enabled else (),
        autoscale=_autoscale(endpoint_spec),
        exposure=_exposure(endpoint_spec),
        annotations=dict(endpoint_spec.tags),
    )


def _autoscale(wanted: EndpointSpec) -> Autoscale | None:
    router = wanted.router
    if wanted.most_routers <= wanted.routers:
        return None
    # Kubernetes scales on percent of the request; the scarce resource is the core, or the limit
    # below it.
    most = min(1.0, router.cpu_limit or 1.0)
    percent = round(_CPU_PERCENT * most / router.cpus)
    return Autoscale(wanted.routers, router.max_replicas, cpu_percent=max(1, percent))


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
