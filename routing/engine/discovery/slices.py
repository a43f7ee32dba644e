"""EndpointSlices in, workers out: which pods of a Service can be sent requests. Pure.

Promises that only a pod which is ready and not terminating becomes a worker. One which was and is
no more drains: its requests go on, and what it has cached is remembered should it come back. Must
not know how the slices got here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from routing.engine.config import Address, Service, WorkerConfig

_WORKER_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")


def _port(data: Mapping[str, Any], wanted: str) -> int:
    """The port of that name, or without one the first; 0 when there is none."""
    for port in data.get("ports") or ():
        if not wanted or port.get("name") == wanted:
            number = port.get("port")
            return number if isinstance(number, int) and 0 < number < 65536 else 0
    return 0


def _name(endpoint: Mapping[str, Any], address: Address) -> str:
    target = endpoint.get("targetRef") or {}
    name = str(target.get("name", "")) if target.get("kind") == "Pod" else ""
    return name if _WORKER_ID.fullmatch(name) else str(address)


def _order(data: Mapping[str, Any]) -> tuple[bool, str]:
    """A pod of two families is in slices of both; it is one worker, by IPv4 where it has that."""
    return data.get("addressType") != "IPv4", str((data.get("metadata") or {}).get("name"))


def workers(
    slices: Iterable[Mapping[str, Any]], service: Service, source: str, known: Collection[str]
) -> tuple[WorkerConfig, ...]:
    """`known` are the ids of those which were workers before."""
    found: dict[str, WorkerConfig] = {}
    for data in sorted(slices, key=_order):
        port = _port(data, service.port_name)
        if not port or data.get("addressType") not in ("IPv4", "IPv6"):
            continue
        for endpoint in data.get("endpoints") or ():
            addresses = endpoint.get("addresses") or ()
            if not addresses:
                continue
            address = Address(str(addresses[0]), port)
            name = _name(endpoint, address)
            conditions = endpoint.get("conditions") or {}
            # Kubernetes: a condition which is not told means ready, and not terminating.
            serving = conditions.get("ready") is not False and not conditions.get("terminating")
            if not serving and name not in known:
                continue
            before = found.get(name)
            if before is None or (before.draining and serving):
                found[name] = _worker(name, address, service, source, draining=not serving)
    return tuple(found[name] for name in sorted(found))


def _worker(
    name: str, address: Address, service: Service, source: str, draining: bool
) -> WorkerConfig:
    scheme = "https" if service.tls else "http"
    return WorkerConfig(
        name,
        f"{scheme}://{address}",
        address,
        draining,
        tls_name=f"{service.name}.{service.namespace}.svc" if service.tls else "",
        source=source,
    )
