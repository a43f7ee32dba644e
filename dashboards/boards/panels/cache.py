"""Panels of the cache tiers: hit rates, transfers, capacity and failures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dashboards.boards.panels.declarations import Board, PanelLine, PanelSection, Style
from dashboards.boards.panels.exporters import (
    DOCUMENTED,
    PROMPTS,
    TIER_LOOKUPS,
    by_endpoint,
    by_worker,
    gauge_of_routers,
    gauge_of_workers,
    of_l2,
    of_lmcache,
    of_prompts,
    of_workers,
)
from dashboards.boards.panels.overview import REUSE, SOURCES
from dashboards.boards.panels.styles import (
    BLUE,
    FAILURES,
    GREEN,
    GREY,
    HITS,
    ORANGE,
    PURPLE,
    SKY,
    TIERS,
)
from dashboards.boards.queries import TOP
from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.cache import both

_TIERED = "vLLM 0.28, with L1 and L2 on"
_L1_L2 = {name: TIERS[name] for name in ("l1", "l2")}
_of_tiers = partial(of_workers, since=_TIERED, styles=_L1_L2)
_SAMPLED = "vLLM 0.12, started with --kv-cache-metrics"

HIT_RATES = of_prompts(
    id="hits",
    title="Hit rates",
    about="Of prompt tokens looked up; “L1 and L2 of the rest”: of those the device did not have.",
    lines=tuple(PanelLine(f"hits_{name}", name=name) for name in HITS),
    unit="share",
    metric=n.PREFIX_QUERIES,
    or_metrics=(n.PREFIX_QUERIES_OLD,),
    styles=HITS,
    zero="Prompts came, and no tier had any of their tokens.",
)
REUSED = of_prompts(
    id="reused-tokens",
    title="Cached prompt tokens by tier",
    about="A second.",
    lines=(PanelLine("reused_tokens_by_tier", by="tier"),),
    unit="tokens_per_s",
    metric=n.CACHED,
    or_metrics=(n.BY_SOURCE,),
    since="vLLM 0.16",
    empty="No prompt token was found in a cache.",
    kind="stacked",
    styles=TIERS,
)
REUSE_BY_WORKER = replace(
    REUSE,
    id="reuse-workers",
    title="Prefix cache hit rate by worker",
    about=f"All tiers together. At most {TOP} workers, the busiest.",
    lines=by_worker("reuse"),
)
CHUNKS = _of_tiers(
    id="chunks",
    title="Lookups that succeeded, by tier",
    about="Of chunks asked for. A lookup ends at its first miss: not comparable with token shares.",
    lines=(PanelLine("chunk_hits_by_tier", by="tier"),),
    unit="share",
    metric=n.CHUNK_QUERIES,
    cause=TIER_LOOKUPS,
    zero="Tiers were queried and had no hit.",
)
LOAD_SPEED = of_prompts(
    id="load-speed",
    title="Speed of loads to the device",
    about="Bytes for each second that transfers from L1 took.",
    lines=(PanelLine("load_speed", name="load", style=Style("L1 to device", GREEN)),),
    unit="bytes_per_s",
    metric=n.LOAD_BYTES,
    or_metrics=(n.OFFLOADED_OLD,),
    since="vLLM 0.16, with L1 on",
    empty="Nothing was loaded from L1.",
)
MOVED = of_prompts(
    id="moved",
    title="Between the device and L1",
    about="Bytes a second: loaded for prompts that hit, stored for later ones.",
    lines=(
        PanelLine("loaded_bytes", name="loaded", style=Style("Loaded", GREEN, "solid")),
        PanelLine("stored_bytes", name="stored", style=Style("Stored", PURPLE, "dash")),
    ),
    unit="bytes_per_s",
    metric=n.STORE_BYTES,
    or_metrics=(n.LOAD_BYTES, n.OFFLOADED_OLD),
    since="vLLM 0.16, with L1 on",
    empty="Nothing was moved between the device and L1.",
)
TIER_READ = _of_tiers(
    id="tier-read",
    title="Read from each tier",
    about="Bytes a second, as workers count.",
    lines=(PanelLine("tier_read_bytes", by="tier"),),
    unit="bytes_per_s",
    metric=n.READ,
    empty="Nothing was read from a tier.",
    cause=PROMPTS,
)
TIER_WRITTEN = replace(
    TIER_READ,
    id="tier-written",
    title="Written to each tier",
    lines=(PanelLine("tier_written_bytes", by="tier"),),
    metric=n.WRITTEN,
    empty="Nothing was written to a tier.",
)
TIER_LOOKUP = _of_tiers(
    id="tier-lookup",
    title="Lookup latency",
    about="p95 for each tier that answers later, as workers count.",
    lines=(PanelLine("tier_lookup_p95", by="tier"),),
    unit="seconds",
    metric=f"{n.TIER_LOOKUP}_count",
    cause=TIER_LOOKUPS,
)
FAILED = of_workers(
    id="tier-failures",
    title="What failed between tiers",
    about="A second. No request fails by it: what is missing is computed again.",
    lines=(PanelLine("offload_failures", by="kind"),),
    unit="per_s",
    metric=n.CHUNK_QUERIES,
    since=_TIERED,
    empty="Nothing failed.",
    kind="bars",
    styles=FAILURES,
)
FULL = gauge_of_workers(
    id="kv-usage",
    title="Device cache held by live requests",
    about="The fullest engine of each worker. Blocks only kept for later count as free.",
    lines=by_worker("kv_usage"),
    unit="share",
    metric=n.KV_USAGE,
    or_metrics=(n.KV_USAGE_OLD,),
    zero="No running request held a block at these moments.",
)
FULL_BY_ENDPOINT = replace(
    FULL,
    id="kv-usage-endpoints",
    about=f"The fullest engine of each endpoint. At most {TOP}, the busiest.",
    lines=by_endpoint("kv_usage"),
)
CAPACITY = gauge_of_routers(
    id="kv-capacity",
    title="Size of each worker's device cache",
    about="In tokens, as the router knows it from the worker's metrics or its configuration.",
    lines=(PanelLine("kv_capacity_by_worker", by="worker"),),
    unit="tokens",
    metric=n.CACHE_TOKENS,
    empty="The router has read no worker's cache size yet.",
)
BLOCKS = of_workers(
    id="blocks",
    title="How long blocks live on the device",
    about="Medians: until evicted, without use before that, and between two uses.",
    lines=(
        PanelLine(
            "block_lifetime_p50", name="lifetime", style=Style("Until evicted", BLUE, "solid")
        ),
        PanelLine("block_idle_p50", name="idle", style=Style("Idle before that", ORANGE, "dash")),
        PanelLine("block_reuse_p50", name="reuse", style=Style("Between uses", GREEN, "dot")),
    ),
    unit="seconds",
    metric=f"{n.BLOCK_LIFETIME}_count",
    since=_SAMPLED,
    empty="No sampled block was evicted.",
)
LM_HITS = of_lmcache(
    id="lmcache-hits",
    title="LMCache: tokens found of those looked up",
    about="Together; as a server also by tier. The median is of single requests, in tenths.",
    lines=(
        PanelLine("lm_lookup_hits", name="all", style=Style("All tiers", SKY, "solid")),
        PanelLine("lm_hits_l1", name="l1", style=TIERS["l1"]),
        PanelLine("lm_hits_l2", name="l2", style=TIERS["l2"]),
        PanelLine(
            "lm_request_rate_p50", name="request", style=Style("Median request", GREY, "longdash")
        ),
    ),
    unit="share",
    metric=f"lmcache:{n.LM_LOOKUP_TOKENS}",
    or_metrics=(both(n.LM_LOOKUP_TOKENS)[1], n.LMS_REQUESTED),
    zero="LMCache was queried and had no hit.",
)
LM_TOKENS = of_lmcache(
    id="lmcache-tokens",
    title="LMCache: tokens supplied",
    about="A second. What “num_vllm_hit_tokens” counts was in the device's cache already.",
    lines=(
        PanelLine("lm_supplied_tokens", name="supplied", style=Style("By LMCache", GREEN, "solid")),
        PanelLine("lm_vllm_tokens", name="vllm", style=Style("By the device", BLUE, "dash")),
    ),
    unit="tokens_per_s",
    metric=f"lmcache:{n.LM_HIT_TOKENS}",
    or_metrics=(both(n.LM_HIT_TOKENS)[1], n.LMS_HITS),
)
LM_HELD = of_lmcache(
    id="lmcache-held",
    title="LMCache: bytes held",
    about="In the host's memory, and in the remote tier.",
    lines=(PanelLine("lm_l1_bytes", name="l1"), PanelLine("lm_l2_bytes", name="l2")),
    unit="bytes",
    metric=f"lmcache:{n.LM_LOCAL_USAGE}",
    or_metrics=(both(n.LM_LOCAL_USAGE)[1], n.LMS_L1_BYTES),
    styles=_L1_L2,
    zero="LMCache holds nothing.",
    cause=None,
)
LM_RETRIEVE = of_lmcache(
    id="lmcache-retrieve",
    title="LMCache: time to retrieve",
    about="p95, within the worker only; the server does not say it.",
    lines=(PanelLine("lm_retrieve_p95", name="p95", style=Style("p95", ORANGE)),),
    unit="seconds",
    metric=f"lmcache:{n.LM_RETRIEVE}_count",
    or_metrics=(f"{both(n.LM_RETRIEVE)[1]}_count",),
)
LM_EVICTED = of_lmcache(
    id="lmcache-evicted",
    title="LMCache: evictions",
    about="A second: keys from the host's memory, or chunks from the server's L2.",
    lines=(PanelLine("lm_evicted", name="evicted", style=Style("Evicted", ORANGE)),),
    unit="per_s",
    metric=f"lmcache:{n.LM_EVICTED}",
    or_metrics=(both(n.LM_EVICTED)[1], n.LMS_L2_EVICTED),
    empty="Nothing was evicted.",
)
L2_FOUND = of_l2(
    id="l2-found",
    title="L2 tier: blocks found",
    about="Of those asked for, for each tier.",
    lines=(PanelLine("l2_hit_share_by_pool", by="pool"),),
    unit="share",
    metric=n.L2_LOOKUPS,
    zero="The tier was queried and had no hit.",
)
L2_FILL = of_l2(
    id="l2-fill",
    title="L2 tier: how full",
    about="For each tier, its memory and its disk.",
    lines=(PanelLine("l2_fill_by_medium", by="pool_medium"),),
    unit="share",
    metric=n.L2_CAPACITY,
    zero="The tier is empty.",
    cause=None,
)
L2_TIME = of_l2(
    id="l2-time",
    title="L2 tier: time of an operation",
    about="p99 within the nodes, by operation.",
    lines=(PanelLine("l2_p99_by_operation", by="op"),),
    unit="seconds",
    metric=f"{n.L2_DURATION}_count",
)
L2_BYTES = of_l2(
    id="l2-bytes",
    title="L2 tier: read and written",
    about="Bytes a second, as the nodes count.",
    lines=(
        PanelLine("l2_read_bytes", name="read", style=Style("Read", GREEN, "solid")),
        PanelLine("l2_written_bytes", name="written", style=Style("Written", PURPLE, "dash")),
    ),
    unit="bytes_per_s",
    metric=n.L2_READ,
)
L2_EVICTED = of_l2(
    id="l2-evicted",
    title="L2 tier: evictions",
    about="Blocks a second, by tier and reason. Many while full: it is too small.",
    lines=(PanelLine("l2_evicted_by_reason", by="pool_reason"),),
    unit="per_s",
    metric=n.L2_EVICTED,
    empty="Nothing was evicted.",
    kind="bars",
)
L2_RESULTS = of_l2(
    id="l2-results",
    title="L2 tier: answers",
    about="Operations a second, by what became of them.",
    lines=(PanelLine("l2_results", by="result"),),
    unit="per_s",
    metric=n.L2_OPERATIONS,
    kind="stacked",
)
L2_TROUBLE = of_l2(
    id="l2-trouble",
    title="L2 tier: refused and damaged",
    about="A second: writes refused by reason, and blocks whose envelope did not fit.",
    lines=(
        PanelLine("l2_rejected_by_reason", by="reason"),
        PanelLine("l2_integrity_failures", name="damaged"),
    ),
    unit="per_s",
    metric=n.L2_REJECTED,
    empty="Nothing was refused, nothing was damaged.",
    kind="bars",
)
L2_NODES = of_l2(
    id="l2-nodes",
    title="L2 tier: nodes up",
    about="For each tier; a node that drains is not up.",
    lines=(PanelLine("l2_nodes_up", by="pool"),),
    unit="count",
    metric=n.L2_NODE_UP,
    cause=None,
    zero="No node is up.",
)

_BETWEEN = (CHUNKS, LOAD_SPEED, MOVED, TIER_READ, TIER_WRITTEN, TIER_LOOKUP, FAILED)
_LMCACHE = PanelSection("LMCache", (LM_HITS, LM_TOKENS, LM_HELD, LM_RETRIEVE, LM_EVICTED))
_NODES = (L2_FOUND, L2_FILL, L2_TIME, L2_BYTES, L2_EVICTED, L2_RESULTS, L2_TROUBLE, L2_NODES)
_CACHED_ANCHOR = "what-was-not-computed-again"  # links written before the title was reworded

BOARD = Board(
    "cache",
    "Cache",
    "Whether the cache helps, tier by tier.",
    "database",
    (
        PanelSection("Cached prompt tokens", (SOURCES, HIT_RATES, REUSE, REUSED), _CACHED_ANCHOR),
        PanelSection("On the device", (FULL_BY_ENDPOINT, BLOCKS)),
        PanelSection("Between tiers", _BETWEEN),
        PanelSection("L2 tiers", _NODES),
        _LMCACHE,
    ),
    (
        PanelSection(
            "Cached prompt tokens", (SOURCES, HIT_RATES, REUSED, REUSE_BY_WORKER), _CACHED_ANCHOR
        ),
        PanelSection("On the device", (FULL, CAPACITY, BLOCKS)),
        PanelSection("Between tiers", _BETWEEN),
        _LMCACHE,
    ),
    DOCUMENTED,
)
