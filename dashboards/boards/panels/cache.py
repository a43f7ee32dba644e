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
    RED,
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
    title="Cache hit rates by tier",
    about="Of all requests' prompt tokens; “of device misses”: of tokens not on the device.",
    lines=tuple(PanelLine(f"hits_{name}", name=name) for name in HITS),
    unit="share",
    metric=n.PREFIX_QUERIES,
    or_metrics=(n.PREFIX_QUERIES_OLD,),
    styles=HITS,
    zero="Prompts were processed without a hit in any tier.",
)
REUSED = of_prompts(
    id="reused-tokens",
    title="Cached prompt tokens/s",
    about="Prompt tokens of all requests that workers read from each cache tier.",
    lines=(PanelLine("reused_tokens_by_tier", by="tier"),),
    unit="tokens_per_s",
    metric=n.CACHED,
    or_metrics=(n.BY_SOURCE,),
    since="vLLM 0.16",
    empty="No prompt tokens were cached.",
    kind="stacked",
    styles=TIERS,
)
REUSE_BY_WORKER = of_prompts(
    id="reuse-workers",
    title="Cache hit rate by worker",
    about=f"Prompt tokens of all requests, all tiers. The {TOP} busiest workers.",
    lines=by_worker("reuse"),
    unit="share",
    metric=n.BY_SOURCE,
    or_metrics=(n.PREFIX_QUERIES, n.PREFIX_QUERIES_OLD),
    zero="Prompts were processed without a cache hit.",
)
CHUNKS = _of_tiers(
    id="chunks",
    title="Chunk hit rate by tier",
    about="A lookup ends at its first miss: not comparable with token hit rates.",
    lines=(PanelLine("chunk_hits_by_tier", by="tier"),),
    unit="share",
    metric=n.CHUNK_QUERIES,
    cause=TIER_LOOKUPS,
    zero="Tiers were queried and had no hits.",
)
LOAD_SPEED = of_prompts(
    id="load-speed",
    title="L1 load bandwidth",
    about="Bytes per second of transfer time from L1 to the device.",
    lines=(PanelLine("load_speed", name="load", style=Style("L1 to device", GREEN)),),
    unit="bytes_per_s",
    metric=n.LOAD_BYTES,
    or_metrics=(n.OFFLOADED_OLD,),
    since="vLLM 0.16, with L1 on",
    empty="No loads from L1.",
)
MOVED = of_prompts(
    id="moved",
    title="Device and L1 transfers",
    about="Loads of cached blocks to the device, and stores to L1.",
    lines=(
        PanelLine("loaded_bytes", name="loaded", style=Style("Loaded", GREEN, "solid")),
        PanelLine("stored_bytes", name="stored", style=Style("Stored", PURPLE, "dash")),
    ),
    unit="bytes_per_s",
    metric=n.STORE_BYTES,
    or_metrics=(n.LOAD_BYTES, n.OFFLOADED_OLD),
    since="vLLM 0.16, with L1 on",
    empty="No transfers between the device and L1.",
)
TIER_READ = _of_tiers(
    id="tier-read",
    title="Tier reads",
    about="Bytes/s by tier, counted by workers.",
    lines=(PanelLine("tier_read_bytes", by="tier"),),
    unit="bytes_per_s",
    metric=n.READ,
    empty="No reads from a tier.",
    cause=PROMPTS,
)
TIER_WRITTEN = replace(
    TIER_READ,
    id="tier-written",
    title="Tier writes",
    lines=(PanelLine("tier_written_bytes", by="tier"),),
    metric=n.WRITTEN,
    empty="No writes to a tier.",
)
TIER_LOOKUP = _of_tiers(
    id="tier-lookup",
    title="Lookup latency p95",
    about="Tiers with asynchronous lookups, measured at workers.",
    lines=(PanelLine("tier_lookup_p95", by="tier"),),
    unit="seconds",
    metric=f"{n.TIER_LOOKUP}_count",
    cause=TIER_LOOKUPS,
)
FAILED = of_workers(
    id="tier-failures",
    title="Tier transfer failures",
    about="Failures/s by kind. Requests do not fail: missing blocks are recomputed.",
    lines=(PanelLine("offload_failures", by="kind"),),
    unit="per_s",
    metric=n.CHUNK_QUERIES,
    since=_TIERED,
    empty="No failures.",
    kind="bars",
    styles=FAILURES,
)
FULL = gauge_of_workers(
    id="kv-usage",
    title="KV cache utilization",
    about="Blocks of running requests, fullest engine of each worker. Cached blocks count as free.",
    lines=by_worker("kv_usage"),
    unit="share",
    metric=n.KV_USAGE,
    or_metrics=(n.KV_USAGE_OLD,),
    zero="No running request held a block.",
)
FULL_BY_ENDPOINT = replace(
    FULL,
    id="kv-usage-endpoints",
    about=f"Blocks of running requests, fullest engine. The {TOP} busiest endpoints.",
    lines=by_endpoint("kv_usage"),
)
CAPACITY = gauge_of_routers(
    id="kv-capacity",
    title="KV cache capacity",
    about="Device cache of each worker in tokens, read by the router.",
    lines=(PanelLine("kv_capacity_by_worker", by="worker"),),
    unit="tokens",
    metric=n.CACHE_TOKENS,
    empty="The router has not read any worker's cache size yet.",
)
BLOCKS = of_workers(
    id="blocks",
    title="KV block lifetime p50",
    about="Time until eviction, idle time before eviction, time between uses.",
    lines=(
        PanelLine(
            "block_lifetime_p50", name="lifetime", style=Style("Until evicted", BLUE, "solid")
        ),
        PanelLine(
            "block_idle_p50", name="idle", style=Style("Idle before eviction", ORANGE, "dash")
        ),
        PanelLine("block_reuse_p50", name="reuse", style=Style("Between uses", GREEN, "dot")),
    ),
    unit="seconds",
    metric=f"{n.BLOCK_LIFETIME}_count",
    since=_SAMPLED,
    empty="No sampled blocks were evicted.",
)
LM_HITS = of_lmcache(
    id="lmcache-hits",
    title="LMCache hit rate",
    about="Share of tokens looked up; in server mode also by tier.",
    lines=(
        PanelLine("lm_lookup_hits", name="all", style=Style("All tiers", SKY, "solid")),
        PanelLine("lm_hits_l1", name="l1", style=TIERS["l1"]),
        PanelLine("lm_hits_l2", name="l2", style=TIERS["l2"]),
        PanelLine(
            "lm_request_rate_p50", name="request", style=Style("Request p50", GREY, "longdash")
        ),
    ),
    unit="share",
    metric=f"lmcache:{n.LM_LOOKUP_TOKENS}",
    or_metrics=(both(n.LM_LOOKUP_TOKENS)[1], n.LMS_REQUESTED),
    zero="LMCache was queried and had no hits.",
)
LM_TOKENS = of_lmcache(
    id="lmcache-tokens",
    title="LMCache tokens/s",
    about="Tokens supplied by LMCache, and tokens already in the device cache.",
    lines=(
        PanelLine("lm_supplied_tokens", name="supplied", style=Style("LMCache", GREEN, "solid")),
        PanelLine("lm_vllm_tokens", name="vllm", style=Style("Device", BLUE, "dash")),
    ),
    unit="tokens_per_s",
    metric=f"lmcache:{n.LM_HIT_TOKENS}",
    or_metrics=(both(n.LM_HIT_TOKENS)[1], n.LMS_HITS),
)
LM_HELD = of_lmcache(
    id="lmcache-held",
    title="LMCache memory",
    about="Bytes stored in host memory and in the remote tier.",
    lines=(PanelLine("lm_l1_bytes", name="l1"), PanelLine("lm_l2_bytes", name="l2")),
    unit="bytes",
    metric=f"lmcache:{n.LM_LOCAL_USAGE}",
    or_metrics=(both(n.LM_LOCAL_USAGE)[1], n.LMS_L1_BYTES),
    styles=_L1_L2,
    zero="LMCache is empty.",
    cause=None,
)
LM_RETRIEVE = of_lmcache(
    id="lmcache-retrieve",
    title="LMCache retrieve latency",
    about="p95, in-process mode only; the server does not export it.",
    lines=(PanelLine("lm_retrieve_p95", name="p95", style=Style("p95", ORANGE)),),
    unit="seconds",
    metric=f"lmcache:{n.LM_RETRIEVE}_count",
    or_metrics=(f"{both(n.LM_RETRIEVE)[1]}_count",),
)
LM_EVICTED = of_lmcache(
    id="lmcache-evicted",
    title="LMCache evictions/s",
    about="Keys evicted from host memory, or chunks from the server's L2.",
    lines=(PanelLine("lm_evicted", name="evicted", style=Style("Evicted", ORANGE)),),
    unit="per_s",
    metric=f"lmcache:{n.LM_EVICTED}",
    or_metrics=(both(n.LM_EVICTED)[1], n.LMS_L2_EVICTED),
    empty="No evictions.",
)
L2_FOUND = of_l2(
    id="l2-found",
    title="L2 block hit rate",
    about="By tier.",
    lines=(PanelLine("l2_hit_share_by_pool", by="pool"),),
    unit="share",
    metric=n.L2_LOOKUPS,
    zero="The tier was queried and had no hits.",
)
L2_FILL = of_l2(
    id="l2-fill",
    title="L2 utilization",
    about="Memory and disk of each tier.",
    lines=(PanelLine("l2_fill_by_medium", by="pool_medium"),),
    unit="share",
    metric=n.L2_CAPACITY,
    zero="The tier is empty.",
    cause=None,
)
L2_TIME = of_l2(
    id="l2-time",
    title="L2 operation latency p99",
    about="By operation, measured at the cache nodes.",
    lines=(PanelLine("l2_p99_by_operation", by="op"),),
    unit="seconds",
    metric=f"{n.L2_DURATION}_count",
)
L2_BYTES = of_l2(
    id="l2-bytes",
    title="L2 reads and writes",
    about="Bytes/s, counted by the cache nodes.",
    lines=(
        PanelLine("l2_read_bytes", name="read", style=Style("Reads", GREEN, "solid")),
        PanelLine("l2_written_bytes", name="written", style=Style("Writes", PURPLE, "dash")),
    ),
    unit="bytes_per_s",
    metric=n.L2_READ,
)
L2_EVICTED = of_l2(
    id="l2-evicted",
    title="L2 evictions/s",
    about="Blocks by tier and reason. Frequent evictions at full utilization: tier too small.",
    lines=(PanelLine("l2_evicted_by_reason", by="pool_reason"),),
    unit="per_s",
    metric=n.L2_EVICTED,
    empty="No evictions.",
    kind="bars",
)
L2_RESULTS = of_l2(
    id="l2-results",
    title="L2 operations/s",
    about="By result.",
    lines=(PanelLine("l2_results", by="result"),),
    unit="per_s",
    metric=n.L2_OPERATIONS,
    kind="stacked",
)
L2_TROUBLE = of_l2(
    id="l2-trouble",
    title="L2 rejected writes and integrity failures",
    about="Rejected writes/s by reason, and blocks/s with an invalid envelope.",
    lines=(
        PanelLine("l2_rejected_by_reason", by="reason"),
        PanelLine("l2_integrity_failures", name="damaged", style=Style("Integrity failure", RED)),
    ),
    unit="per_s",
    metric=n.L2_REJECTED,
    empty="No rejected writes, no integrity failures.",
    kind="bars",
)
L2_NODES = of_l2(
    id="l2-nodes",
    title="L2 nodes up",
    about="By tier; draining nodes are not up.",
    lines=(PanelLine("l2_nodes_up", by="pool"),),
    unit="count",
    metric=n.L2_NODE_UP,
    cause=None,
    zero="No nodes are up.",
)

_BETWEEN = (CHUNKS, LOAD_SPEED, MOVED, TIER_READ, TIER_WRITTEN, TIER_LOOKUP, FAILED)
_LMCACHE = PanelSection("LMCache", (LM_HITS, LM_TOKENS, LM_HELD, LM_RETRIEVE, LM_EVICTED))
_NODES = (L2_FOUND, L2_FILL, L2_TIME, L2_BYTES, L2_EVICTED, L2_RESULTS, L2_TROUBLE, L2_NODES)
# Links written before the titles were reworded.
_CACHED_ANCHOR = "what-was-not-computed-again"
_DEVICE_ANCHOR, _BETWEEN_ANCHOR = "on-the-device", "between-tiers"

BOARD = Board(
    "cache",
    "Cache",
    "Hit rates, transfers, capacity and failures of each cache tier.",
    "database",
    (
        PanelSection("Cached prompt tokens", (SOURCES, HIT_RATES, REUSE, REUSED), _CACHED_ANCHOR),
        PanelSection("Device cache", (FULL_BY_ENDPOINT, BLOCKS), _DEVICE_ANCHOR),
        PanelSection("Tier transfers", _BETWEEN, _BETWEEN_ANCHOR),
        PanelSection("L2 cache tiers", _NODES, "l2-tiers"),
        _LMCACHE,
    ),
    (
        PanelSection(
            "Cached prompt tokens", (SOURCES, HIT_RATES, REUSED, REUSE_BY_WORKER), _CACHED_ANCHOR
        ),
        PanelSection("Device cache", (FULL, CAPACITY, BLOCKS), _DEVICE_ANCHOR),
        PanelSection("Tier transfers", _BETWEEN, _BETWEEN_ANCHOR),
        _LMCACHE,
    ),
    DOCUMENTED,
)
