"""Free loopback ports for programs that need a port argument.

Below the ephemeral range of `bind(0)` and outgoing connections, and from a slice that no other
process of any test run uses: otherwise the port could be taken before the program binds it.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

_FIRST, _SLICE, _SLICES = 10_000, 600, 36


def _claim_slice() -> tuple[int, IO[bytes]]:
    """Return the first port of a slice, and the file whose lock holds it meanwhile."""
    for number in range(_SLICES):
        path = Path(tempfile.gettempdir()) / f"emberline-test-ports-{number}"
        try:
            file = path.open("wb")
        except OSError:  # of another user
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
        else:
            return _FIRST + number * _SLICE, file
    raise AssertionError(f"all {_SLICES} port slices are used by other test processes")


_slice, _lock = _claim_slice()
# The next process with this slice begins elsewhere: ports of the last one may not be free yet.
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
