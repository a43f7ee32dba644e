"""State and forecast of the file system with EMBERLINE_VAR, and classification of disk errors."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import linear_regression

_GIB = 1024**3
_MIB = 1024**2
# Low space requires both: 10 % of a large disk is plenty, and 5 GiB may be all of a small one.
LOW_SHARE, LOW_BYTES = 0.10, 5 * _GIB
LOW_INODES = 0.05
FORECAST_LOW_S = 6 * 3600.0
"""A forecast below this is `low`, independently of the free space."""
_FULL_BYTES, _FULL_SHARE = 16 * _MIB, 0.01
_SAMPLE_EVERY_S, _SAMPLES = 30.0, 120  # one hour
_SPAN_S = 300.0  # shorter spans are noise: compaction, log rotation
_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_SQLITE = {8: "read-only database", 10: "disk I/O error", 13: "disk full", 14: "cannot be opened"}
_POSTGRES_FULL = "53100"
REMEDY = (
    "Delete or move files below EMBERLINE_VAR (`du -xh` shows the largest), or enlarge its file "
    "system. "
    "Everything recovers by itself; endpoints serve meanwhile."
)


class DiskState(StrEnum):
    OK = "ok"
    LOW = "low"
    FULL = "full"
    """Writes fail or are about to fail."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Space of a file system. `inodes` is 0 on file systems without a limit. `full_in_s` is None
    without a trend.
    """

    path: Path
    total_bytes: int
    free_bytes: int
    inodes: int
    inodes_free: int
    read_only: bool
    full_in_s: float | None = None

    @property
    def free_share(self) -> float:
        return self.free_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def inodes_free_share(self) -> float:
        return self.inodes_free / self.inodes if self.inodes else 1.0

    @property
    def state(self) -> DiskState:
        least = min(_FULL_BYTES, self.total_bytes * _FULL_SHARE)
        if self.read_only or self.free_bytes <= least or (self.inodes and not self.inodes_free):
            return DiskState.FULL
        small = self.free_share < LOW_SHARE and self.free_bytes < LOW_BYTES
        soon = self.full_in_s is not None and self.full_in_s < FORECAST_LOW_S
        few = self.inodes_free_share < LOW_INODES
        return DiskState.LOW if small or soon or few else DiskState.OK

    @property
    def text(self) -> str:
        """Describe the state without the path: `/readyz` and the error page are public."""
        parts = [
            f"{format_bytes(self.free_bytes)} of {format_bytes(self.total_bytes)} free "
            f"({100 * self.free_share:.0f} %)"
        ]
        if self.read_only:
            parts.append("mounted read-only")
        if self.inodes_free_share < LOW_INODES:
            parts.append(f"{self.inodes_free} of {self.inodes} inodes free")
        if self.full_in_s is not None and self.state is DiskState.LOW:
            parts.append(f"full in about {_format_span(self.full_in_s)} at the present rate")
        return ", ".join(parts)

    @property
    def remedy(self) -> str:
        if self.state is DiskState.OK:
            return ""
        if self.read_only:
            return "Mount the file system of EMBERLINE_VAR writable; `dmesg` has the cause."
        return REMEDY


class Trend:
    """Free space over the last hour, extrapolated to zero."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)

    def full_in_s(self, free_bytes: int) -> float | None:
        """Add `free_bytes` as a sample (at most one per 30 s) and return the forecast."""
        now = self._clock()
        with self._lock:
            if not self._samples or now - self._samples[-1][0] >= _SAMPLE_EVERY_S:
                self._samples.append((now, float(free_bytes)))
            times, free = zip(*self._samples, strict=True)
        if len(times) < 3 or times[-1] - times[0] < _SPAN_S:
            return None
        slope = linear_regression(times, free).slope
        return free_bytes / -slope if slope < 0 else None


_trend = Trend()


def read_disk(path: Path) -> Disk:
    """Return the state; raise OSError if the file system does not respond."""
    file_system = os.statvfs(path)
    free = file_system.f_bavail * file_system.f_frsize
    return Disk(
        path,
        total_bytes=file_system.f_blocks * file_system.f_frsize,
        free_bytes=free,
        inodes=file_system.f_files,
        inodes_free=file_system.f_favail,
        read_only=bool(file_system.f_flag & os.ST_RDONLY),
        full_in_s=_trend.full_in_s(free),
    )


def disk_fault(error: BaseException | None) -> str:
    """Return the disk problem behind an error or its cause, "" if none."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _ERRNOS:
            return os.strerror(error.errno).lower()
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _SQLITE:
            return f"database: {_SQLITE[code]}"
        if getattr(error, "sqlstate", "") == _POSTGRES_FULL:
            return "the database server's disk is full"
        error = error.__cause__
    return ""


def format_bytes(number: float) -> str:
    """Format bytes: 1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(number) < 1024 or unit == "PiB":
            break
        number /= 1024
    return f"{number:.1f}".removesuffix(".0") + f" {unit}"


def _format_span(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds >= 5400 else f"{max(1, seconds / 60):.0f} min"
