"""Map EndpointSlices to workers.

Only pods that are ready and not terminating become workers. A former worker that is not ready
drains: its requests finish and its cache contents are remembered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from routing.engine.config import Address, Service, WorkerConfig

_WORKER_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")


def _find_port(data: Mapping[str, Any], wanted: str) -> int:
    """Return the named port, or the first one; 0 if there is none."""
    for port in data.get("ports") or ():
        if not wanted or port.get("name") == wanted:
            number = port.get("port")
            return number if isinstance(number, int) and 0 < number < 65536 else 0
    return 0


def _slice_name(endpoint: Mapping[str, Any], address: Address) -> str:
    target = endpoint.get("targetRef") or {}
    name = str(target.get("name", "")) if target.get("kind") == "Pod" else ""
    return name if _WORKER_ID.fullmatch(name) else str(address)


def _address_order(data: Mapping[str, Any]) -> tuple[bool, str]:
    """Sort key: a dual-stack pod is in slices of both families; prefer IPv4."""
    return data.get("addressType") != "IPv4", str((data.get("metadata") or {}).get("name"))


def workers_of_service(
    slices: Iterable[Mapping[str, Any]], service: Service, source: str, known: Collection[str]
) -> tuple[WorkerConfig, ...]:
    """Return the workers of a Service. `known`: ids of the previous workers."""
    found: dict[str, WorkerConfig] = {}
    for data in sorted(slices, key=_address_order):
        port = _find_port(data, service.port_name)
        if not port or data.get("addressType") not in ("IPv4", "IPv6"):
            continue
        for endpoint in data.get("endpoints") or ():
            addresses = endpoint.get("addresses") or ()
            if not addresses:
                continue
            address = Address(str(addresses[0]), port)
            name = _slice_name(endpoint, address)
            conditions = endpoint.get("conditions") or {}
            # Kubernetes API: an unset condition means ready and not terminating.
            serving = conditions.get("ready") is not False and not conditions.get("terminating")
            if not serving and name not in known:
                continue
            before = found.get(name)
            if before is None or (before.draining and serving):
                found[name] = _make_worker(name, address, service, source, draining=not serving)
    return tuple(found[name] for name in sorted(found))


def _make_worker(
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
