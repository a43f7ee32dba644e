"""Prometheus text of a node.

All series exist from the start, so that zeros are exported. Only namespaces configured with --quota
have series of their memory; those from clients are in GET /namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachetier.engine.counters import OTHER_LABEL
from cachetier.engine.disk.counters import DiskUsage
from cachetier.engine.disk.health import DiskState
from cachetier.engine.disk.tier import DiskTier
from cachetier.engine.handover import HandoverOutcome
from cachetier.engine.node import Node
from cachetier.engine.store import StoreUsage
from console.processkit.metrics import Histogram, escape

# One number, or one per label value; keys are tuples if there are several labels.
_Values = int | Mapping[Any, int]


class _Exposition:
    """Metric families of one pool, named emberline_l2_*."""

    def __init__(self, pool: str) -> None:
        self._pool = f'pool="{escape(pool)}"'
        self.lines: list[str] = []

    def counter(self, name: str, text: str, values: _Values, *labels: str) -> None:
        self._family(f"emberline_l2_{name}_total", "counter", text, values, labels)

    def gauge(self, name: str, text: str, values: _Values, *labels: str) -> None:
        self._family(f"emberline_l2_{name}", "gauge", text, values, labels)

    def _family(
        self, name: str, kind: str, text: str, values: _Values, labels: tuple[str, ...]
    ) -> None:
        self.head(name, kind, text)
        for key, value in values.items() if isinstance(values, Mapping) else (((), values),):
            keys = (key,) if isinstance(key, str) else key
            pairs = zip(labels, keys, strict=True)
            more = "".join(f',{label}="{escape(text)}"' for label, text in pairs)
            self.lines.append(f"{name}{{{self._pool}{more}}} {value}")

    def histogram(self, name: str, text: str, series: Mapping[str, Histogram]) -> None:
        """Add a histogram; `series` are keyed by their further labels."""
        name = f"emberline_l2_{name}"
        self.head(name, "histogram", text)
        for more, histogram in series.items():
            labels, running = self._pool + more, 0
            for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
                running += count
                edge = "+Inf" if bound is None else f"{bound:g}"
                self.lines.append(f'{name}_bucket{{{labels},le="{edge}"}} {running}')
            self.lines.append(f"{name}_sum{{{labels}}} {histogram.sum:.9g}")
            self.lines.append(f"{name}_count{{{labels}}} {running}")

    def head(self, name: str, kind: str, text: str) -> None:
        self.lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def render_metrics(node: Node) -> str:
    out = _Exposition(node.config.pool)
    _add_operations(out, node)
    _add_connections(out, node)
    _add_state(out, node)
    _add_shares(out, node)
    _add_handover(out, node)
    if node.disk is not None:
        _add_disk(out, node.disk)
    leases = node.leases
    out.gauge("leases", "Leases held by readers on this host.", len(leases))
    out.gauge("leased_bytes", "Bytes pinned by leases.", leases.pinned_bytes)
    out.counter("leases_granted", "Leases granted.", leases.granted)
    text = "Leases that expired before they were returned."
    out.counter("leases_expired", text, leases.expired)
    text = "Values not leased because the lease limit was reached."
    out.counter("leases_refused", text, leases.refused)
    return "\n".join(out.lines) + "\n"


def _add_operations(out: _Exposition, node: Node) -> None:
    counters = node.counters
    text = "Operations by kind and result."
    out.counter("operations", text, counters.operations, "op", "result")
    text = "Command duration inside the node (s)."
    durations = {f',op="{op}"': histogram for op, histogram in counters.durations.items()}
    out.histogram("operation_duration_seconds", text, durations)
    text = "Commands whose reply has not been read by the client."
    out.gauge("in_flight_operations", text, counters.in_flight, "op")
    text = "Blocks looked up: EXISTS of a block key, or GET of any other key."
    out.counter("lookup_blocks", text, counters.lookups, "namespace")
    out.counter("hit_blocks", "Blocks found.", counters.hits, "namespace")
    out.counter("read_bytes", "Bytes of values sent.", counters.read_bytes)
    out.counter("written_bytes", "Bytes stored.", counters.written_bytes)
    text = "Values removed other than by DEL."
    out.counter("evicted_blocks", text, counters.evicted, "reason")
    text = "Age of a value when it was evicted."
    out.histogram("block_age_at_eviction_seconds", text, {"": counters.ages})
    out.counter("rejected_writes", "Values rejected.", counters.rejected, "reason")
    text = "Blocks rejected because their envelope did not match their key or length."
    out.counter("integrity_failures", text, counters.integrity_failures)


def _add_connections(out: _Exposition, node: Node) -> None:
    counters = node.counters
    text = "Login attempts: right, wrong, or locked after too many wrong ones."
    out.counter("logins", text, counters.logins, "result")
    text = "Operations that failed because the system gave no memory."
    out.counter("memory_failures", text, node.shortage.failures)
    text = "Connections closed or rejected by this node."
    out.counter("closed_connections", text, counters.closed, "reason")
    text = "Requests from web pages to the admin port."
    out.counter("admin_requests_refused", text, counters.admin_refused)
    text = "Failed TLS handshakes; disconnects are not counted."
    out.counter("tls_handshake_failures", text, counters.handshakes, "reason")


def _add_state(out: _Exposition, node: Node) -> None:
    media: dict[str, StoreUsage | DiskUsage] = {"memory": node.store.usage()}
    if node.disk is not None:
        media["nvme"] = node.disk.usage()
    used = {name: usage.used_bytes for name, usage in media.items()}
    out.gauge("used_bytes", "Bytes of keys, values and their overhead.", used, "medium")
    capacity = {name: usage.capacity_bytes for name, usage in media.items()}
    out.gauge("capacity_bytes", "Upper limit of used_bytes.", capacity, "medium")
    blocks = {name: usage.entries for name, usage in media.items()}
    out.gauge("blocks", "Values stored at present.", blocks, "medium")
    out.gauge("connections", "Open connections.", len(node.sessions))
    up = {str(node.config.listen): int(not node.draining)}
    out.gauge("node_up", "0 while the node drains.", up, "node")
    name = "process_start_time_seconds"
    out.head(name, "gauge", "Start time of the process (Unix time, s).")
    out.lines.append(f"{name} {node.counters.started_at}")


def _add_shares(out: _Exposition, node: Node) -> None:
    usage, quotas = node.store.usage(), node.config.quotas
    spaces = {name: space.bytes for name, space in node.census.spaces()}
    used = {name: spaces.get(name, 0) for name in quotas}
    used[OTHER_LABEL] = sum(spaces.values()) - sum(used.values())
    text = "Used bytes of removed values that are still being read."
    out.gauge("held_bytes", text, usage.held_bytes)
    text = "Used bytes of values being received."
    out.gauge("receiving_bytes", text, usage.receiving_bytes)
    out.gauge(
        "policy_info",
        "Always 1; the label names the eviction policy.",
        {node.config.policy: 1},
        "policy",
    )
    text = "Evicted keys remembered by the policy."
    out.gauge("policy_ghosts", text, node.policy.ghosts())
    text = "Bytes in memory of namespaces with a quota, and of all others together."
    out.gauge("namespace_used_bytes", text, used, "namespace")
    text = "Memory quota of a namespace (bytes)."
    out.gauge("namespace_quota_bytes", text, quotas, "namespace")
    text = "Namespaces whose values are rejected because they only thrash (--admission)."
    shut = 0 if node.admission is None else len(node.admission.shut())
    out.gauge("refused_namespaces", text, shut)


def _add_handover(out: _Exposition, node: Node) -> None:
    handover = node.handover
    counts = dict.fromkeys(HandoverOutcome, 0) if handover is None else handover.counts
    text = "Values to hand over to peers, by outcome."
    out.counter("handover_values", text, counts, "result")
    text = "Values moved here from another node, by a handover or by clients after a change."
    out.counter("moved_in_values", text, node.counters.moved_in, "source")
    text = "Bytes of values accepted by peers."
    out.counter("handover_bytes", text, 0 if handover is None else handover.bytes)


def _add_disk(out: _Exposition, disk: DiskTier) -> None:
    usage, counters = disk.usage(), disk.counters
    states = {state: int(state is usage.state) for state in DiskState}
    out.gauge("disk_state", "1 for the current state of the disk.", states, "state")
    out.gauge("disk_live_bytes", "Readable bytes on disk.", usage.live_bytes)
    out.gauge("disk_waiting_bytes", "Bytes in memory waiting to be written.", usage.waiting_bytes)
    out.gauge("disk_index_bytes", "Estimated memory of the index (bytes).", usage.index_bytes)
    out.gauge("disk_segments", "Segment files.", usage.segments)
    out.counter("disk_written_blocks", "Values written to disk.", counters.written)
    out.counter("disk_written_bytes", "Bytes written to disk.", counters.written_bytes)
    out.counter("disk_read_bytes", "Bytes of values read from disk.", counters.read_bytes)
    out.counter("disk_promoted_blocks", "Values read back into memory.", counters.promoted)
    out.counter("disk_moved_blocks", "Values moved by compaction.", counters.moved)
    out.counter("disk_evicted_blocks", "Values removed with an old segment.", counters.evicted)
    out.counter("disk_compactions", "Segments compacted.", counters.compactions)
    out.counter("disk_failures", "Failed writes, syncs and retries.", counters.failures)
    text = "Values evicted from memory and not written to disk."
    out.counter("disk_declined_blocks", text, counters.declined, "reason")
    out.counter("disk_reads", "Values read from disk.", counters.reads, "result")
