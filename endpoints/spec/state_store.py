"""State store of an endpoint's routers: the possible ones in order of precedence. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cachetier.client.address import AddressError
from cachetier.client.node_list import Nodes
from console.core.state_store import StateStore
from endpoints.spec.endpoint_spec import EndpointSpec

IN_CLUSTER = "in-cluster"
"""Name of the cluster that the console runs in."""


class StoreOrigin(StrEnum):
    ENDPOINT = "endpoint"
    L2 = "l2"
    INSTALLATION = "installation"

    @property
    def label(self) -> str:
        return _ORIGIN_LABELS[self]


_ORIGIN_LABELS = {
    StoreOrigin.ENDPOINT: "set by the endpoint",
    StoreOrigin.L2: "redis L2 cache of the endpoint",
    StoreOrigin.INSTALLATION: "set by the installation",
}


@dataclass(frozen=True, slots=True)
class ChosenStore:
    """State store in force for an endpoint. `ca_file`: named by the endpoint, `ca`: PEM of the
    installation's.
    """

    origin: StoreOrigin
    url: str
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    ca: str = ""


def choose_store(spec: EndpointSpec, installed: StateStore | None) -> ChosenStore | None:
    """Return the store that several routers of the endpoint use: its own, else its redis L2 cache,
    else the installation's; None for a single router or without any.
    """
    return usable_store(spec, installed) if spec.most_routers > 1 else None


def usable_store(spec: EndpointSpec, installed: StateStore | None) -> ChosenStore | None:
    """Return the store that the endpoint's routers would use if they were several."""
    return _own_store(spec) or _l2_store(spec) or _installed_store(spec, installed)


def separate_routers_warning(spec: EndpointSpec, installed: StateStore | None) -> str:
    """Return what several routers without a state store cost, with the remedy; "" if they share
    one.
    """
    if spec.most_routers < 2 or choose_store(spec, installed) is not None:
        return ""
    count = f"{spec.routers} routers"
    if spec.most_routers > spec.routers:
        count = f"Up to {spec.most_routers} routers"
    cost = "which costs cache hits, and limits are divided among them"
    if spec.routing.effective_strategy == "roundrobin":
        cost = "and limits are divided among them"
    remedy = "Set a state store URL, or use one router."
    if _l2_redis(spec):
        remedy = (
            "The redis L2 cache cannot serve as one: it has several addresses, is a Redis Cluster "
            f"or needs TLS files. {remedy}"
        )
    return f"{count} without a state store: each knows its own requests only, {cost}. {remedy}"


def _own_store(spec: EndpointSpec) -> ChosenStore | None:
    own = spec.router.state_store
    if not own.url:
        return None
    return ChosenStore(StoreOrigin.ENDPOINT, own.url, own.username, own.password_file, own.ca_file)


def _l2_redis(spec: EndpointSpec) -> bool:
    l2 = spec.cache.l2
    return l2.enabled and l2.backend == "redis" and bool(l2.url)


def _l2_store(spec: EndpointSpec) -> ChosenStore | None:
    """Return the endpoint's Redis, None if routers do not support its cluster or certificates."""
    if not _l2_redis(spec):
        return None
    try:
        nodes = Nodes.parse(spec.cache.l2.url)
    except AddressError:
        return None
    address = nodes.addresses[0] if nodes.addresses else None
    if nodes.kind != "list" or len(nodes.addresses) != 1 or address is None:
        return None
    if address.ca_file or address.cert_file or address.server_name:
        return None
    file = spec.cache.l2.password_file
    return ChosenStore(StoreOrigin.L2, str(address), address.user or "", file)


def _installed_store(spec: EndpointSpec, installed: StateStore | None) -> ChosenStore | None:
    if installed is None or spec.placement.cluster not in ("", IN_CLUSTER):
        return None
    return ChosenStore(
        StoreOrigin.INSTALLATION,
        installed.url,
        installed.username,
        installed.password_file,
        ca=installed.ca,
    )
