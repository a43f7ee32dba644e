"""Disk tier counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cachetier.engine.disk.health import DiskState


class DiskDecline(StrEnum):
    """Reason why an evicted value was not written to disk."""

    DOWN = "down"  # disk not writable
    BEHIND = "behind"  # eviction rate exceeds disk throughput
    TOO_LARGE = "too_large"  # longer than a segment or the queue
    ENDED = "ended"  # expired or dropped before it was written


class ReadOutcome(StrEnum):
    OK = "ok"
    CORRUPT = "corrupt"  # checksum mismatch: dropped, counts as a miss
    ERROR = "error"  # I/O error: dropped, counts as a miss
    BEHIND = "behind"  # read queue full: counts as a miss, value kept


@dataclass(slots=True)
class DiskCounters:
    written: int = 0
    written_bytes: int = 0
    read_bytes: int = 0
    promoted: int = 0
    moved: int = 0
    evicted: int = 0  # values in segments removed to make room
    compactions: int = 0
    failures: int = 0
    declined: dict[DiskDecline, int] = field(default_factory=lambda: dict.fromkeys(DiskDecline, 0))
    reads: dict[ReadOutcome, int] = field(default_factory=lambda: dict.fromkeys(ReadOutcome, 0))


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Counters of the disk tier. `used_bytes` is the size of the files; `capacity_bytes` drops
    below the configured value while the file system is full. `risen` entries are in memory as well;
    `waiting_bytes` are in memory until written.
    """

    used_bytes: int
    capacity_bytes: int
    entries: int
    risen: int
    live_bytes: int
    waiting_bytes: int
    index_bytes: int
    segments: int
    state: DiskState
    reason: str


def info_fields(usage: DiskUsage, counters: DiskCounters) -> dict[str, object]:
    return {
        "disk_state": usage.state.value,
        "disk_reason": usage.reason,
        "disk_used_bytes": usage.used_bytes,
        "disk_capacity_bytes": usage.capacity_bytes,
        "disk_keys": usage.entries,
        "disk_waiting_bytes": usage.waiting_bytes,
        "disk_written_bytes": counters.written_bytes,
        "disk_read_bytes": counters.read_bytes,
        "disk_promoted_keys": counters.promoted,
    }
