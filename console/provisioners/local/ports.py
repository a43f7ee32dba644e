"""Which ports replicas get: free ones from a range below the kernel's ephemeral one, kept for
the replica's life so that its address survives restarts."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Mapping

from console.provisioners.base import TemporaryError

HOST = "127.0.0.1"
FIRST, LAST = 20000, 29999


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen there now (connections of a former one may still linger)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError:
            return False
    return True


def choose(names: Iterable[str], remembered: Mapping[str, int], taken: set[int]) -> dict[str, int]:
    """A port for each name: the remembered one if it is still free, else a new one.

    `taken` are the ports of all replicas, this one's own included. The search starts at a random
    place: two installations on one machine seldom want the same port.
    """
    chosen: dict[str, int] = {}
    for name in names:
        port = remembered.get(name, 0)
        if not port or not is_free(port):
            port = _search(taken | set(chosen.values()))
        chosen[name] = port
    return chosen


def _search(taken: set[int]) -> int:
    count = LAST - FIRST + 1
    start = random.randrange(count)
    for step in range(count):
        port = FIRST + (start + step) % count
        if port not in taken and is_free(port):
            return port
    raise TemporaryError("NoFreePort", f"No port from {FIRST} to {LAST} is free.", delay_s=30.0)
