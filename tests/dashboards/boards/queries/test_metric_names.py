"""Queried metric names are exported by vLLM, the router and the cache node."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cachetier.engine.config import parse
from cachetier.engine.metrics import render_metrics
from cachetier.engine.node import Node
from console.processkit.metrics import MetricSample, parse_samples
from dashboards.boards import queries
from dashboards.boards.panels import BOARDS, styles
from dashboards.boards.queries import QUERIES, Scope, Times
from dashboards.boards.queries import metric_names as n
from routing.analysis import choices
from routing.engine.kvaware import metrics as kvaware_metrics
from routing.engine.misses.ledger import MissLedger
from routing.engine.observe.metrics import CACHE_STATES, Metrics, StrategyMetrics

# Names and labels as seen on a running vLLM 0.32.
VLLM = Path(__file__).parents[3] / "endpoints" / "simulated_worker" / "vllm_0_32_metrics.json"
ASKED = re.compile(r"\b(?:vllm:|emberline_)\w+")
# What a plain 0.32 has not: gone since, or only there when something is turned on.
FORMER = {
    f"{n.ITL_OLD}_bucket",
    f"{n.ITL_OLD}_count",
    n.KV_USAGE_OLD,
    n.PREFIX_HITS_OLD,
    n.PREFIX_QUERIES_OLD,
    n.OFFLOADED_OLD,
    n.OFFLOAD_TIME_OLD,
}
TURNED_ON = {
    n.FLOPS,
    *(n.LOAD_BYTES, n.LOAD_TIME, n.STORE_BYTES, n.STORE_REFUSED),
    *(n.CHUNK_QUERIES, n.CHUNK_HITS, n.READ, n.WRITTEN),
    *(n.PROMOTIONS_FAILED, n.PROMOTIONS_REFUSED, n.CASCADES_FAILED, n.BLOCKS_DROPPED),
    *(f"{name}_{end}" for name in (n.TIER_LOOKUP, n.BLOCK_LIFETIME) for end in ("bucket", "count")),
    *(f"{name}_bucket" for name in (n.BLOCK_IDLE, n.BLOCK_REUSE)),
}


def list_queried_metrics() -> set[str]:
    text = " ".join(
        queries.render_for_chart(name, Scope("demo"), Times(5, 900)) for name in QUERIES
    )
    boards = BOARDS.values()
    every = [panel for board in boards for one in (True, False) for panel in board.panels(one=one)]
    wanted = " ".join(metric for panel in every for metric in panel.metrics)
    return set(ASKED.findall(f"{text} {wanted}"))


def router() -> list[MetricSample]:
    metrics = Metrics("default", "demo")
    MissLedger(metrics.registry)
    metrics.decisions.child("prefixaware", "prefix_hit", "demo-worker-0")
    StrategyMetrics(metrics, "prefixaware")
    for family in (metrics.in_flight, metrics.worker_up, metrics.circuit, metrics.index_blocks):
        family.child("demo-worker-0")
    metrics.cache_tokens.child("demo-worker-0")
    return parse_samples(metrics.registry.render().decode())


def following_caches() -> set[str]:
    """What a router with strategy kvaware exports beside."""
    source = Path(kvaware_metrics.__file__).read_text()
    return set(re.findall(r'"(emberline_router_\w+)"', source))


def node() -> list[MetricSample]:
    return parse_samples(render_metrics(Node(parse(("--memory", "64MiB")))))


def test_every_metric_name_is_exported() -> None:
    vllm = set(json.loads(VLLM.read_text()))
    vllm |= {f"{name}_{end}" for name in vllm for end in ("bucket", "count", "sum")}
    exported = vllm | following_caches() | {sample.name for sample in (*router(), *node())}
    assert list_queried_metrics() - exported == FORMER | TURNED_ON


def test_grouping_labels_are_exported() -> None:
    vllm = json.loads(VLLM.read_text())
    assert "source" in vllm[n.CACHED]["labels"]
    assert "source" in vllm[n.BY_SOURCE]["labels"]
    by_name = {sample.name: sample.labels for sample in (*router(), *node())}
    assert {"endpoint", "namespace", "code"} <= set(by_name[n.REQUESTS])
    assert {"endpoint", "namespace", "reason", "worker"} <= set(by_name[n.DECISIONS])
    assert {"cache", "le"} <= set(by_name[f"{n.ROUTER_TTFT}_bucket"])
    for name in (n.L2_HITS, n.L2_LOOKUPS, n.L2_USED, n.L2_CAPACITY):
        assert "pool" in by_name[name]


def test_every_reason_and_state_has_a_style() -> None:
    assert set(styles.CACHE_STATES) == set(CACHE_STATES)
    assert set(styles.REASONS) == set(choices.REASONS)
    drawn_styles = {(style.colour, style.dash, style.hatch) for style in styles.REASONS.values()}
    assert len(drawn_styles) == len(styles.REASONS)
