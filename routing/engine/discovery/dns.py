"""Worker discovery by DNS: each address of a name (for example a headless Service) is a worker.

Lookups run off the event loop at a fixed interval, since the system resolver does not expose TTLs.
A name without addresses is a failure, not an empty result.
"""

from __future__ import annotations

import asyncio
import random
import socket

from routing.engine.config import Address, DnsName, WorkerConfig
from routing.engine.discovery.base import DiscoveryError, WorkerFinder

_UNKNOWN_NAME_ERRORS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
JITTER = 0.1


async def resolve(name: str, port: int) -> list[Address]:
    """Return all addresses, sorted because servers shuffle them. Raise DiscoveryError."""
    try:
        # Uses the loop's thread pool; resolv.conf sets the timeout.
        records = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        reason = "no_name" if error.errno in _UNKNOWN_NAME_ERRORS else "temporary"
        raise DiscoveryError(reason, f"{name}: {error.strerror}") from None
    except OSError as error:
        raise DiscoveryError("other", f"{name}: {error.strerror or error}") from None
    return sorted({Address(str(item[4][0]), port) for item in records}, key=str)


class DnsFinder(WorkerFinder):
    kind = "dns"
    reasons: tuple[str, ...] = ("no_name", "temporary", "other")

    def __init__(self, target: DnsName, interval_s: float) -> None:
        super().__init__(str(target))
        self._target = target
        self._interval_s = interval_s

    async def run(self) -> None:
        target = self._target
        while True:
            try:
                addresses = await resolve(target.name, target.port)
            except DiscoveryError as error:
                self.failed(error)
            else:
                self.succeeded(tuple(self._worker(address) for address in addresses))
            await asyncio.sleep(self._interval_s * random.uniform(1 - JITTER, 1 + JITTER))

    def _worker(self, address: Address) -> WorkerConfig:
        scheme = "https" if self._target.tls else "http"
        return WorkerConfig(
            str(address),
            f"{scheme}://{address}",
            address,
            tls_name=self._target.name.rstrip(".") if self._target.tls else "",
            source=self.name,
        )
