"""Disk tier counters, for INFO and Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
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
    removed_segments: int = 0  # to make room
    evicted: int = 0  # values in the removed segments
    compactions: int = 0
    failures: int = 0
    declined: dict[DiskDecline, int] = field(default_factory=lambda: dict.fromkeys(DiskDecline, 0))
    reads: dict[ReadOutcome, int] = field(default_factory=lambda: dict.fromkeys(ReadOutcome, 0))


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """`used_bytes` is the size of the files; `capacity_bytes` drops below the configured value
    while the file system is full. `risen` entries are in memory as well; `waiting_bytes` are in
    memory until written.
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


def render(pool: str, usage: DiskUsage, counters: DiskCounters) -> Iterable[str]:
    """Yield the disk-only metric families; shared ones are rendered by the node."""
    states = {f'state="{state.value}"': int(state is usage.state) for state in DiskState}
    yield from _render_family(
        pool, "disk_state", "gauge", "1 for the state the disk is in.", states
    )
    gauges = {
        "disk_live_bytes": ("Bytes on disk which can be read.", usage.live_bytes),
        "disk_waiting_bytes": ("Bytes in memory, to be written.", usage.waiting_bytes),
        "disk_index_bytes": ("Memory of the index, estimated.", usage.index_bytes),
        "disk_segments": ("Segment files.", usage.segments),
    }
    for name, (text, value) in gauges.items():
        yield from _render_family(pool, name, "gauge", text, {"": value})
    totals = {
        "disk_written_blocks": ("Values written to disk.", counters.written),
        "disk_written_bytes": ("Bytes of them.", counters.written_bytes),
        "disk_read_bytes": ("Bytes of values read from disk.", counters.read_bytes),
        "disk_promoted_blocks": ("Values read back into memory.", counters.promoted),
        "disk_moved_blocks": ("Values moved by compaction.", counters.moved),
        "disk_evicted_blocks": ("Values which went with an old segment.", counters.evicted),
        "disk_compactions": ("Segments compacted.", counters.compactions),
        "disk_failures": ("Failed writes, syncs and retries.", counters.failures),
    }
    for name, (text, value) in totals.items():
        yield from _render_family(pool, f"{name}_total", "counter", text, {"": value})
    declined = {f'reason="{reason.value}"': n for reason, n in counters.declined.items()}
    text = "Values which left memory and were not kept on disk."
    yield from _render_family(pool, "disk_declined_blocks_total", "counter", text, declined)
    reads = {f'result="{result.value}"': n for result, n in counters.reads.items()}
    yield from _render_family(pool, "disk_reads_total", "counter", "Values read from disk.", reads)


def _render_family(
    pool: str, name: str, kind: str, text: str, values: dict[str, int]
) -> Iterable[str]:
    yield f"# HELP emberline_l2_{name} {text}"
    yield f"# TYPE emberline_l2_{name} {kind}"
    for labels, value in values.items():
        more = f",{labels}" if labels else ""
        yield f'emberline_l2_{name}{{pool="{pool}"{more}}} {value}'
