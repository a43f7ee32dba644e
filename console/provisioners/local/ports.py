"""Port allocation for replicas.

Ports are from a range below the kernel's ephemeral ports and are kept for the replica's lifetime,
so that its address survives restarts.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Iterable, Mapping

import psutil

from console.provisioners.base import TemporaryError

HOST = "127.0.0.1"
FIRST, LAST = 20000, 29999


def is_free(port: int, host: str = HOST) -> bool:
    """Return whether a server could listen now (connections of a former one may linger)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError:
            return False
    return True


def port_holder(port: int) -> tuple[int, str]:
    """Return the pid that holds the port (0 if unreadable) and its description: pid and name, never
    its arguments, which may contain secrets.
    """
    try:
        connections = [c for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port]
    except psutil.Error:
        connections = []
    # Prefer the listener; the local end of a connection occupies a port too.
    connections.sort(key=lambda one: one.status != psutil.CONN_LISTEN)
    pid = next((connection.pid for connection in connections if connection.pid), 0)
    try:
        name = psutil.Process(pid).name() if pid else ""
    except psutil.Error:
        name = "ended"
    return pid, f"pid {pid} ({name})" if pid else "a process of another user"


def free_ports(wanted: Mapping[str, int], taken: Collection[int]) -> dict[str, int]:
    return {
        name: port
        for name, port in wanted.items()
        if FIRST <= port <= LAST and port not in taken and is_free(port)
    }


def choose_ports(
    names: Iterable[str],
    remembered: Mapping[str, int],
    taken: set[int],
    fixed: Collection[str] = (),
) -> dict[str, int]:
    """Return a port for each name: the remembered one if free or `fixed`, else a new one.

    `taken` contains the ports of all replicas, including this one. The search starts at a random
    port, so that two installations on one machine rarely collide.
    """
    chosen: dict[str, int] = {}
    for name in names:
        port = remembered.get(name, 0)
        if not port or (name not in fixed and not is_free(port)):
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
