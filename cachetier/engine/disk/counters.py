"""What the disk tier counts and tells of itself: plain numbers, and their text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from cachetier.engine.disk.health import DiskState


class DiskDecline(StrEnum):
    """Why a value which left memory was not kept on disk."""

    DOWN = "down"  # the disk takes no writes now
    BEHIND = "behind"  # more leaves memory than the disk takes
    TOO_LARGE = "too_large"  # longer than a segment or the queue
    ENDED = "ended"  # past its end, or dropped, before it was written


class ReadOutcome(StrEnum):
    OK = "ok"
    CORRUPT = "corrupt"  # not what was written: dropped, answered as a miss
    ERROR = "error"  # the disk failed to read it: dropped, answered as a miss
    BEHIND = "behind"  # too many reads waiting: answered as a miss, kept


@dataclass(slots=True)
class DiskCounters:
    written: int = 0
    written_bytes: int = 0
    read_bytes: int = 0
    promoted: int = 0
    moved: int = 0
    removed_segments: int = 0  # to make room
    evicted: int = 0  # values which went with them
    compactions: int = 0
    failures: int = 0
    declined: dict[DiskDecline, int] = field(default_factory=lambda: dict.fromkeys(DiskDecline, 0))
    reads: dict[ReadOutcome, int] = field(default_factory=lambda: dict.fromkeys(ReadOutcome, 0))


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """`used_bytes` is what the files take; `capacity_bytes` falls below what was asked for while
    the disk has no room for it. `risen` of the entries are in memory as well; `waiting_bytes` are
    held in memory until they are written."""

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


def about(usage: DiskUsage, counters: DiskCounters) -> dict[str, object]:
    """For INFO."""
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
    """Families of their own; the shared ones (used_bytes ... medium="nvme") are the node's."""
    states = {f'state="{state.value}"': int(state is usage.state) for state in DiskState}
    yield from _family(pool, "disk_state", "gauge", "1 for the state the disk is in.", states)
    gauges = {
        "disk_live_bytes": ("Bytes on disk which can be read.", usage.live_bytes),
        "disk_waiting_bytes": ("Bytes in memory, to be written.", usage.waiting_bytes),
        "disk_index_bytes": ("Memory of the index, estimated.", usage.index_bytes),
        "disk_segments": ("Segment files.", usage.segments),
    }
    for name, (text, value) in gauges.items():
        yield from _family(pool, name, "gauge", text, {"": value})
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
        yield from _family(pool, f"{name}_total", "counter", text, {"": value})
    declined = {f'reason="{reason.value}"': n for reason, n in counters.declined.items()}
    text = "Values which left memory and were not kept on disk."
    yield from _family(pool, "disk_declined_blocks_total", "counter", text, declined)
    reads = {f'result="{result.value}"': n for result, n in counters.reads.items()}
    yield from _family(pool, "disk_reads_total", "counter", "Values read from disk.", reads)


def _family(pool: str, name: str, kind: str, text: str, values: dict[str, int]) -> Iterable[str]:
    yield f"# HELP emberline_l2_{name} {text}"
    yield f"# TYPE emberline_l2_{name} {kind}"
    for labels, value in values.items():
        more = f",{labels}" if labels else ""
        yield f'emberline_l2_{name}{{pool="{pool}"{more}}} {value}'
