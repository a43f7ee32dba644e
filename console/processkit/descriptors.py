"""File descriptors of this process: the limit, those in use, and errors that mean our own limit."""

from __future__ import annotations

import contextlib
import errno
import resource
from pathlib import Path

MOST = 2**20
RESERVE = 64
"""Descriptors kept for what must work under load: admin port, health checks, logs, state store."""
NONE_LEFT = "no file descriptor is left in this process"


def raise_limit() -> None:
    """Raise the soft limit to the hard one: the usual soft limit of 1024 is for `select` only."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def limit() -> int:
    return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], MOST)


def in_use() -> int:
    """Return the number of open descriptors, 0 where the system does not tell."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError as error:
        return limit() if is_own_limit(error) else 0


def is_own_limit(error: BaseException | None) -> bool:
    """Return whether a call failed since this process, or this machine, has no descriptor left.
    Such an error says nothing about the peer.
    """
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
