"""Node counters and their Prometheus text.

All series exist from the start, so that zeros are exported.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from cachetier.engine.disk.counters import DiskUsage
from cachetier.engine.net import timeouts
from cachetier.engine.net.access import LoginVerdict
from cachetier.engine.store import EvictionReason, StoreUsage
from cachetier.wire.commands import OPERATIONS
from console.processkit.listener import HANDSHAKE_REASONS
from console.processkit.metrics import Histogram, escape

RESULTS: Final = ("hit", "miss", "ok", "error", "timeout")
REJECTIONS: Final = ("admission", "backpressure", "quota", "too_large")
# Reasons for closing or rejecting a connection.
CLOSE_REASONS: Final = (
    timeouts.LOGIN,
    timeouts.STALLED,
    timeouts.IDLE,
    "max_clients",
    "draining",
    "handshakes",
    "http",
    "wrong_password",
)
_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
_DURATIONS: Final = (*(ms / 1000 for ms in _MS), 1.0, 2.5, 5.0, 10.0)
_AGES: Final = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400)
# Namespaces come from clients: beyond this many, the others share one label.
_MAX_NAMESPACES: Final = 64
_OTHER_LABEL: Final = "other"


class Counters:
    """Counters of one node. Event loop only."""

    def __init__(self, pool: str, node: str) -> None:
        self._started = time.time()
        self._pool = escape(pool)
        self._node = escape(node)
        self.operations = {(op, result): 0 for op in OPERATIONS for result in RESULTS}
        self.durations = {op: Histogram(_DURATIONS) for op in OPERATIONS}
        self.in_flight = dict.fromkeys(OPERATIONS, 0)
        self.lookups: dict[str, int] = {"": 0}
        self.hits: dict[str, int] = {"": 0}
        self.read_bytes = 0
        self.written_bytes = 0
        self.evicted = dict.fromkeys(EvictionReason, 0)
        self.ages = Histogram(_AGES)
        self.rejected = dict.fromkeys(REJECTIONS, 0)
        self.integrity_failures = 0
        self.logins = dict.fromkeys(LoginVerdict, 0)
        self.closed = dict.fromkeys(CLOSE_REASONS, 0)
        self.handshakes = dict.fromkeys(HANDSHAKE_REASONS, 0)
        self.connections = 0
        self.admin_refused = 0

    def handshake_failed(self, reason: str) -> None:
        self.handshakes[reason] += 1

    def turned_away(self) -> None:
        self.closed["handshakes"] += 1

    def evict(self, reason: EvictionReason, age_s: float) -> None:
        self.evicted[reason] += 1
        self.ages.observe(age_s)

    def looked_up(self, namespace: str, found: bool) -> None:
        if namespace not in self.lookups:
            if len(self.lookups) > _MAX_NAMESPACES:
                namespace = _OTHER_LABEL
            self.lookups.setdefault(namespace, 0)
            self.hits.setdefault(namespace, 0)
        self.lookups[namespace] += 1
        self.hits[namespace] += found

    def hit_rate(self) -> tuple[int, int]:
        """Return (hits, lookups) over all namespaces."""
        return sum(self.hits.values()), sum(self.lookups.values())

    def render(self, usage: StoreUsage, disk: DiskUsage | None = None, *, up: bool) -> str:
        lines: list[str] = []
        for family in (self._operation_lines, self._block_lines, self._door_lines):
            lines.extend(family())
        lines.extend(self._state_lines(usage, disk, up))
        return "\n".join(lines) + "\n"

    def _operation_lines(self) -> Iterable[str]:
        yield from self._counter(
            "operations",
            "Operations by kind and result.",
            {f'op="{op}",result="{res}"': n for (op, res), n in self.operations.items()},
        )
        name = "emberline_l2_operation_duration_seconds"
        yield from _render_head(name, "histogram", "Time inside the node for one command.")
        for op, histogram in self.durations.items():
            yield from _render_histogram(histogram, name, f'pool="{self._pool}",op="{op}"')
        yield from self._gauge(
            "in_flight_operations",
            "Commands whose reply the client has not taken yet.",
            {f'op="{op}"': n for op, n in self.in_flight.items()},
        )

    def _block_lines(self) -> Iterable[str]:
        yield from self._counter(
            "lookup_blocks",
            "Blocks asked for: EXISTS of a block's key, or GET of any other key.",
            {f'namespace="{name}"': n for name, n in self.lookups.items()},
        )
        yield from self._counter(
            "hit_blocks",
            "Blocks asked for and found.",
            {f'namespace="{name}"': n for name, n in self.hits.items()},
        )
        yield from self._counter("read_bytes", "Bytes of values sent.", {"": self.read_bytes})
        yield from self._counter("written_bytes", "Bytes stored.", {"": self.written_bytes})
        yield from self._counter(
            "evicted_blocks",
            "Values which left other than by DEL.",
            {f'reason="{reason.value}"': n for reason, n in self.evicted.items()},
        )
        name = "emberline_l2_block_age_at_eviction_seconds"
        yield from _render_head(name, "histogram", "Age of a value when it was evicted.")
        yield from _render_histogram(self.ages, name, f'pool="{self._pool}"')
        yield from self._counter(
            "rejected_writes",
            "Values refused.",
            {f'reason="{reason}"': n for reason, n in self.rejected.items()},
        )
        yield from self._counter(
            "integrity_failures",
            "Blocks refused because their envelope did not fit their key or length.",
            {"": self.integrity_failures},
        )

    def _door_lines(self) -> Iterable[str]:
        yield from self._counter(
            "logins",
            "Passwords given: right, wrong, or wrong after too many wrong ones (locked).",
            {f'result="{result.value}"': n for result, n in self.logins.items()},
        )
        yield from self._counter(
            "closed_connections",
            "Connections which this node closed or did not take.",
            {f'reason="{reason}"': n for reason, n in self.closed.items()},
        )
        yield from self._counter(
            "admin_requests_refused",
            "Requests of web pages to the admin port.",
            {"": self.admin_refused},
        )
        yield from self._counter(
            "tls_handshake_failures",
            "TLS handshakes which failed; a client which just goes away is not counted.",
            {f'reason="{reason}"': n for reason, n in self.handshakes.items()},
        )

    def _state_lines(self, usage: StoreUsage, disk: DiskUsage | None, up: bool) -> Iterable[str]:
        media: dict[str, StoreUsage | DiskUsage] = {"memory": usage}
        if disk is not None:
            media["nvme"] = disk
        used = {f'medium="{name}"': one.used_bytes for name, one in media.items()}
        yield from self._gauge("used_bytes", "Bytes of keys, values and their overhead.", used)
        capacity = {f'medium="{name}"': one.capacity_bytes for name, one in media.items()}
        yield from self._gauge("capacity_bytes", "What used_bytes never passes.", capacity)
        blocks = {f'medium="{name}"': one.entries for name, one in media.items()}
        yield from self._gauge("blocks", "Values held.", blocks)
        yield from self._gauge("connections", "Open connections.", {"": self.connections})
        yield from self._gauge(
            "node_up", "0 while the node drains.", {f'node="{self._node}"': int(up)}
        )
        yield from _render_head(
            "process_start_time_seconds", "gauge", "Start of the process, seconds since the epoch."
        )
        yield f"process_start_time_seconds {self._started}"

    def _counter(self, name: str, text: str, values: Mapping[str, int]) -> Iterable[str]:
        return self._family(f"emberline_l2_{name}_total", "counter", text, values)

    def _gauge(self, name: str, text: str, values: Mapping[str, int]) -> Iterable[str]:
        return self._family(f"emberline_l2_{name}", "gauge", text, values)

    def _family(self, name: str, kind: str, text: str, values: Mapping[str, int]) -> Iterable[str]:
        yield from _render_head(name, kind, text)
        for labels, value in values.items():
            more = f",{labels}" if labels else ""
            yield f'{name}{{pool="{self._pool}"{more}}} {value}'


def _render_head(name: str, kind: str, text: str) -> Iterable[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _render_histogram(histogram: Histogram, name: str, labels: str) -> Iterable[str]:
    running = 0
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        running += count
        edge = "+Inf" if bound is None else f"{bound:g}"
        yield f'{name}_bucket{{{labels},le="{edge}"}} {running}'
    yield f"{name}_sum{{{labels}}} {histogram.sum:.9g}"
    yield f"{name}_count{{{labels}}} {running}"
