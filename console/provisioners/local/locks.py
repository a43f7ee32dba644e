"""Locks between all processes which use one var/.

Promises that a lock dies with its holder, that waiting ends, and that the number of lock files
does not grow with the number of workloads that ever were (names share a fixed set of files;
two workloads which share one only wait for each other). Deleting a lock file would let two
holders in, so none is deleted.
"""

from __future__ import annotations

import fcntl
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from console.processkit.files import make_private_dir
from console.provisioners.base import TemporaryError

_FILES = 64
_WAIT_S = 10.0
_POLL_S = 0.01


@contextmanager
def workload_lock(var: Path, name: str) -> Iterator[None]:
    with _held(var, f"workload-{zlib.crc32(name.encode()) % _FILES:02d}"):
        yield


@contextmanager
def ports_lock(var: Path) -> Iterator[None]:
    """Taken inside a workload's lock, never the other way round."""
    with _held(var, "ports"):
        yield


@contextmanager
def _held(var: Path, name: str) -> Iterator[None]:
    folder = var / "run" / "locks"
    make_private_dir(folder)
    deadline = time.monotonic() + _WAIT_S
    with (folder / name).open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TemporaryError(
                        "Busy", "Another call works on the same workload.", delay_s=1.0
                    ) from None
                time.sleep(_POLL_S)
        yield
