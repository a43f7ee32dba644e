"""Endpoints with sparse traffic as samples on disk, and the true growth of their counters.

Targets are scraped each 15 seconds, or each five, as the product does. Counters with `lazy` labels
are exported only once they have counted something, as prometheus_client does. `grown` adds up what
the exporters counted, from the same events, without Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dashboards.boards.queries import metric_names as n
from tests.support.prometheus import write_blocks

Key = tuple[str, tuple[tuple[str, str], ...]]
Counts = dict[Key, float]


def key(name: str, **labels: str) -> Key:
    return name, tuple(sorted(labels.items()))


def observed(name: str, value: float, times: int = 1, **labels: str) -> Counts:
    """A histogram that saw a value so often."""
    edges = ("0.5", "1.0", "100.0", "+Inf")
    found = {key(f"{name}_bucket", le=le, **labels): 0.0 for le in edges}
    for le in edges:
        found[key(f"{name}_bucket", le=le, **labels)] = times if value <= float(le) else 0.0
    return found | {key(f"{name}_count", **labels): times, key(f"{name}_sum", **labels): value}


SOURCES = {"device": 640, "host": 128, "disk": 128}
SEEN = (n.TTFT, n.E2E, n.QUEUE_TIME, n.PREFILL_TIME, n.DECODE_TIME, n.ITL, n.PROMPT_LENGTH)
EAGER: Counts = {
    key(n.PROMPT): 0,
    key(n.GENERATED): 0,
    key(n.PREEMPTIONS): 0,
    key(n.FINISHED, finished_reason="stop"): 0,
    key(n.BY_SOURCE, source="local_compute"): 0,
    key(n.CACHED_ALL): 0,
    key(n.PREFIX_QUERIES): 0,
    key(n.PREFIX_HITS): 0,
    key(f"{n.PREEMPTED}_count"): 0,
    **{key(n.CACHED, source=source): 0 for source in SOURCES},
    **{one: 0 for name in SEEN for one in observed(name, 0.2)},
}


def served(requests: int) -> Counts:
    """What a worker counts for requests of 1,000 prompt tokens each, of which 896 were cached."""
    found: Counts = {
        key(n.PROMPT): 1000 * requests,
        key(n.GENERATED): 20 * requests,
        key(n.FINISHED, finished_reason="stop"): requests,
        key(n.BY_SOURCE, source="local_compute"): 104 * requests,
        key(n.CACHED_ALL): 896 * requests,
        key(n.PREFIX_QUERIES): 1000 * requests,
        key(n.PREFIX_HITS): 640 * requests,
        key(n.HTTP_REQUESTS, handler="/v1/completions", status="2xx"): requests,
        **{key(n.CACHED, source=one): count * requests for one, count in SOURCES.items()},
        key(n.STORE_BYTES): 5e6 * requests,
        key(n.LOAD_BYTES): 4e6 * requests,
        key(n.LOAD_TIME): 0.01 * requests,
    }
    for tier, hits in (("0:cpu", 9), ("1:emberline", 21)):
        found |= {
            key(n.CHUNK_QUERIES, tier=tier): 30 * requests,
            key(n.CHUNK_HITS, tier=tier): hits * requests,
            key(n.READ, tier=tier): 31e6 * requests,
            key(n.WRITTEN, tier=tier): 2e6 * requests,
        }
    for name in SEEN:
        found |= observed(name, 0.2, requests)
    return found | observed(n.TIER_LOOKUP, 0.2, requests, tier="1:emberline")


def routed(requests: int, failed: int = 0) -> Counts:
    """What a router counts; nothing had to wait."""
    worker = {"worker": "w-0", "strategy": "prefix"}
    found = {
        key(n.REQUESTS, code="200"): requests - failed,
        key(n.DECISIONS, reason="prefix_hit", **worker): requests,
        key(n.ROUTER_CACHED): 896 * requests,
        key(n.ROUTER_COMPUTED, cause="first_seen"): 104 * requests,
        key(n.ROUTER_COMPLETION): 20 * requests,
        key(n.ROUTER_PREDICTED): 900 * requests,
        **observed(n.ROUTER_TTFT, 0.3, requests, cache="partial"),
        **observed(n.OVERHEAD, 0.2, requests, strategy="prefix"),
        **observed(n.MATCH_RATIO, 0.9, requests, strategy="prefix"),
    }
    if failed:
        found |= {key(n.REQUESTS, code="502"): failed, key(n.ERRORS, reason="refused"): failed}
    return found


GAUGES: Mapping[str, Mapping[Key, float]] = {
    "vllm": {key(n.RUNNING): 0, key(n.WAITING): 0, key(n.KV_USAGE): 0},
    "router": {
        key(n.QUEUE_DEPTH): 0,
        key(n.QUEUE_LIMIT): 100,
        key(n.WORKER_UP, worker="w-0"): 1,
        key(n.IN_FLIGHT, worker="w-0"): 0,
        key(n.CIRCUIT, worker="w-0"): 0,
    },
}
STARTED: Mapping[str, Counts] = {
    "vllm": EAGER,
    "router": dict.fromkeys(observed(n.QUEUED_FOR, 0.2), 0),
}


@dataclass
class Target:
    """One process. Times are seconds before the end; `away`: scrapes fail from, to;
    `first`: when it was first scraped, though it had run before."""

    job: str
    endpoint: str
    events: list[tuple[int, Counts]] = field(default_factory=list)
    born: int = 1800
    died: int = 0
    first: int = 0
    away: tuple[int, int] = (0, 0)
    number: int = 0
    every: int = 15

    @property
    def labels(self) -> dict[str, str]:
        named = {"endpoint": self.endpoint} if self.job == "router" else {}
        return {
            "job": self.job,
            "instance": f"{self.endpoint}-{self.job}:{8000 + self.number}",
            "namespace": "default",
            "endpoint_name": self.endpoint,
            "pod": f"{self.endpoint}-{self.job}-{self.number}",
            **named,
        }

    def samples(self, end: int) -> Iterator[tuple[Key, float, int]]:
        counts = dict(STARTED[self.job])
        waiting = sorted(self.events, key=lambda event: -event[0])
        first = self.first or self.born
        for back in range(self.born, self.died - 1, -self.every):
            while waiting and waiting[0][0] >= back:
                for one, grown in waiting.pop(0)[1].items():
                    counts[one] = counts.get(one, 0.0) + grown
            if back > first:
                continue
            at, answers = end - back, not self.away[0] >= back >= self.away[1] > 0
            yield key("up"), float(answers), at
            if answers:
                yield key("process_start_time_seconds"), float(end - self.born), at
                for one, value in {**counts, **GAUGES[self.job]}.items():
                    yield one, value, at

    def grown(self, name: str, back: int, **labels: str) -> float:
        """How much the process counted in so many last seconds."""
        return sum(
            grown
            for at, counts in self.events
            for (own, pairs), grown in counts.items()
            if own == name and at < back and labels.items() <= dict(pairs).items()
        )


def write(targets: list[Target], end: int, folder: Path) -> None:
    """As blocks that a Prometheus in the folder reads."""
    rows: dict[str, list[str]] = {}
    for target in targets:
        series: dict[Key, str] = {}
        for one, value, at in target.samples(end):
            if one not in series:
                name, pairs = one
                shown = ",".join(f'{k}="{v}"' for k, v in (dict(pairs) | target.labels).items())
                series[one] = f"{name}{{{shown}}}"
            rows.setdefault(one[0], []).append(f"{series[one]} {value!r} {at}")
    write_blocks(rows, folder)
