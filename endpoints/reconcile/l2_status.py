"""State of an endpoint's L2: our own tier or an external Redis. Short checks that never raise."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from cachetier import actions as tiers
from cachetier.client.address import Address
from cachetier.client.cache_client import CacheClient
from cachetier.client.connection import CacheError, DeniedError, ReplyError
from cachetier.client.node_list import Nodes, resolve_addresses
from cachetier.selectors import attachment
from cachetier.tier.lifecycle import DEFAULT_TIER
from console.core import confined_files
from console.core.confined_files import FileRefused
from endpoints.choices import PhaseReason
from endpoints.lifecycle.facts import ObservedComponent
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.fields import L2Spec
from endpoints.spec.validators import url_files
from endpoints.workload.worker_spec import L2Access

CHECK_S = 2.0


@dataclass(frozen=True, slots=True)
class L2Check:
    """Observed reachability of an endpoint's L2. `access`: None while no address is known; `part`:
    None if L2 is off.
    """

    access: L2Access | None = None
    part: ObservedComponent | None = None


def check_l2(spec: EndpointSpec) -> L2Check:
    l2 = spec.cache.l2
    if not l2.enabled:
        return L2Check()
    if spec.needs_cache_tier:
        return _tier(l2.tier)
    return _redis(l2, may_be_elsewhere=spec.on_cluster)


def _tier(name: str) -> L2Check:
    if name == DEFAULT_TIER:
        tiers.ensure_default_tier()
    attached = attachment(name)
    access = L2Access(attached.url, attached.password_file) if attached.url else None
    part = ObservedComponent(
        "cache tier", attached.ready, attached.reason, attached.message, bool(attached.url)
    )
    return L2Check(access, part)


def _redis(l2: L2Spec, *, may_be_elsewhere: bool = False) -> L2Check:
    access = L2Access(l2.url, l2.password_file, str(settings.EMBERLINE.l2_secrets))
    if may_be_elsewhere and url_files(l2.url):
        text = "Not checked from the console: the address refers to files in the worker pods."
        return L2Check(access, ObservedComponent("redis", True, "", text))
    if may_be_elsewhere and not _is_resolvable(l2.url):
        text = "Not checked from the console: the name resolves only in the cluster."
        return L2Check(access, ObservedComponent("redis", True, "", text))
    problem = _ping(access)
    part = ObservedComponent(
        "redis", not problem, PhaseReason.L2_UNAVAILABLE if problem else "", problem
    )
    return L2Check(access, part)


def _is_resolvable(url: str) -> bool:
    """Return whether every host resolves in the console, as for workers on this machine."""
    try:
        for address in Nodes.parse(url).addresses:
            socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # AddressError is a ValueError
        return False
    return True


def _ping(access: L2Access) -> str:
    """Return the error, "" on success: every node of a list, any node of a cluster."""
    folder = Path(access.folder)
    try:
        name = access.password_file
        password = confined_files.read_text(name, folder).strip() if name else ""
        for path in url_files(access.url):
            confined_files.read_text(path, folder)
    except FileRefused as refused:
        return f"{refused}."
    try:
        nodes = Nodes.parse(access.url)
        addresses = (
            resolve_addresses(nodes.addresses[0]) if nodes.kind == "dns" else nodes.addresses
        )
    except (ValueError, OSError) as error:  # AddressError is a ValueError
        return f"{access.url} cannot be queried ({type(error).__name__})."
    until = time.monotonic() + CHECK_S
    problems = [_ping_node(address, password, until) for address in addresses]
    if nodes.kind == "cluster" and "" in problems:
        return ""
    return " ".join(problem for problem in problems if problem)


def _ping_node(address: Address, password: str, until: float) -> str:
    client = CacheClient(address, password)
    try:
        client.ask(b"PING", timeout_s=max(until - time.monotonic(), 0.05))
    except DeniedError:
        return f"{address} rejects the password."
    except ReplyError as error:
        if str(error).startswith("NOAUTH"):
            return f"{address} rejects the password."
        return f"{address} is unreachable ({error})."
    except CacheError as error:
        return f"{address} is unreachable ({type(error).__name__})."
    except ValueError as error:  # such as an unresolvable host name
        return f"{address} cannot be queried ({type(error).__name__})."
    finally:
        client.close()
    return ""
