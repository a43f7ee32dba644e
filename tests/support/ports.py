"""Free loopback ports for programs that need a port argument.

Below the ephemeral range of `bind(0)` and outgoing connections, and from a slice not used by other
processes of this test run: otherwise the port could be taken before the program binds it.
"""

from __future__ import annotations

import itertools
import os
import re
import socket

_FIRST, _SLICE = 10_000, 600
_worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
# EMBERLINE_TEST_PORT_SLICE: for a run beside another one, both without xdist.
_alone = int(os.environ.get("EMBERLINE_TEST_PORT_SLICE", "8"))
_slice = _FIRST + _SLICE * (int(_worker.group(1)) % 8 if _worker else _alone)
# Two runs on one machine start at different offsets.
_next = itertools.count(os.getpid() * 37)


def free_port() -> int:
    for _ in range(_SLICE):
        port = _slice + next(_next) % _SLICE
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"no free port in {_slice}-{_slice + _SLICE - 1}")


def free_ports(number: int) -> list[int]:
    """Return distinct ports."""
    return [free_port() for _ in range(number)]
