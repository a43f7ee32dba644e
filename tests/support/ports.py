"""Free ports of loopback, for programs which must be told theirs."""

from __future__ import annotations

import socket


def free_ports(number: int) -> list[int]:
    """All different; held together until all are known."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(held.getsockname()[1]) for held in sockets]
    for held in sockets:
        held.close()
    return ports
