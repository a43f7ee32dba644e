"""Panels of the router: decisions, their reasons and their accuracy."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels.declarations import Board, PanelLine, PanelSection, Style
from dashboards.boards.panels.exporters import by_endpoint, gauge_of_routers, of_prompts, of_router
from dashboards.boards.panels.overview import BY_CACHE, QUEUE, REASONS_PANEL, SHARE
from dashboards.boards.panels.styles import BLUE, GREEN, ORANGE, RED
from dashboards.boards.queries import TOP
from dashboards.boards.queries import metric_names as n

_KVAWARE = "Emberline's router, with strategy kvaware"

STRATEGIES = of_router(
    id="strategies",
    title="Decisions by strategy",
    about="A second, each strategy with its reasons.",
    lines=(PanelLine("decisions_by_strategy_reason", by="strategy_reason"),),
    unit="per_s",
    metric=n.DECISIONS,
)
BALANCE = of_router(
    id="imbalance",
    title="Load imbalance (max/mean)",
    about="The busiest worker's requests over the mean's. 1: all the same; above 2: look why.",
    lines=(PanelLine("imbalance", name="imbalance", style=Style("Busiest over mean", BLUE)),),
    unit="count",
    metric=n.DECISIONS,
)
SKEW = of_prompts(
    id="prompt-skew",
    title="Prompt token imbalance",
    about="Spread of prompt tokens over workers, over their mean, as workers count. 0: the same.",
    lines=(PanelLine("prompt_skew", name="skew", style=Style("Spread over mean", BLUE)),),
    unit="count",
    metric=n.PROMPT,
    zero="All workers were given equally much.",
)
FALLBACKS = of_router(
    id="fallbacks",
    title="Decisions that fell back",
    about="Share of decisions for which no cache counted.",
    lines=(PanelLine("fallback_share", name="share", style=Style("Fell back", ORANGE)),),
    unit="share",
    metric=n.DECISIONS,
    zero="Requests were routed, and no decision fell back.",
)
FALLBACKS_BY_ENDPOINT = replace(
    FALLBACKS,
    id="fallbacks-endpoints",
    title="Decisions that fell back, by endpoint",
    about=f"Share of decisions for which no cache counted. At most {TOP}, the busiest.",
    lines=by_endpoint("fallback_share", "endpoint"),
)
MATCH = of_router(
    id="match",
    title="How much of a prompt was known",
    about="At the chosen worker, by the router's index. Half of the prompts: more.",
    lines=(PanelLine("match_ratio_by_strategy", by="strategy"),),
    unit="share",
    metric=f"{n.MATCH_RATIO}_count",
    zero="Requests were routed, and of most of them nothing was known.",
)
HONESTY = of_router(
    id="kept-promises",
    title="Expected and found",
    about="Cached tokens workers reported for each one expected. 1: the router knows the caches.",
    lines=(PanelLine("kept_promises", name="kept", style=Style("Found over expected", GREEN)),),
    unit="count",
    metric=n.ROUTER_PREDICTED,
    empty="The router expected nothing cached, or workers do not report what was cached.",
    zero="The router expected cached tokens, and workers found none of them.",
)
OVERHEAD = of_router(
    id="overhead",
    title="What the router adds",
    about="p99 of the time it needs before a request goes out, by strategy.",
    lines=(PanelLine("overhead_p99_by_strategy", by="strategy"),),
    unit="seconds",
    metric=f"{n.OVERHEAD}_count",
)
QUEUED = of_router(
    id="queued",
    title="Time waited at the router",
    about="p95, of all requests; most waited for nothing.",
    lines=(PanelLine("queued_p95", name="p95", style=Style("p95", ORANGE)),),
    unit="seconds",
    metric=f"{n.QUEUED_FOR}_count",
    empty="The router counted the queue time of none of them.",
)
TTFT_P95_BY_CACHE = replace(
    BY_CACHE,
    id="ttft-cache-p95",
    title="TTFT p95 by cached share",
    about="p95 of streamed answers, as the router saw it.",
    lines=(PanelLine("ttft_p95_by_cache", by="cache"),),
)
ERRORS = of_router(
    id="errors",
    title="Errors by reason",
    about="A second, as the router counts them; also those nobody was answered about.",
    lines=(PanelLine("errors_by_reason", by="reason"),),
    unit="per_s",
    metric=n.ERRORS,
    empty="No errors.",
    kind="bars",
)
RETRIES = replace(
    ERRORS,
    id="retries",
    title="Retried requests",
    about="A second, by why the first worker was left.",
    lines=(PanelLine("retries_by_reason", by="reason"),),
    metric=n.RETRIES,
    empty="None was retried.",
)
HEALTHY = gauge_of_routers(
    id="healthy",
    title="Workers the router trusts",
    about="Which pass its health checks, and which it leaves out after failures.",
    lines=(
        PanelLine("workers_healthy", name="healthy", style=Style("Healthy", GREEN, "solid")),
        PanelLine("circuits_open", name="open", style=Style("Left out", RED, "dot")),
    ),
    unit="count",
    metric=n.WORKER_UP,
    zero="No worker is healthy.",
)
HEALTHY_BY_ENDPOINT = replace(
    HEALTHY,
    id="healthy-endpoints",
    title="Healthy workers by endpoint",
    about=f"Which pass the router's health checks. At most {TOP} endpoints, the busiest.",
    lines=by_endpoint("workers_healthy", "endpoint"),
)
IN_FLIGHT = gauge_of_routers(
    id="in-flight",
    title="Requests in flight",
    about=f"At each worker, as its router counts. At most {TOP} workers, the fullest.",
    lines=(PanelLine("in_flight_by_worker", by="worker"),),
    unit="count",
    metric=n.IN_FLIGHT,
    zero="No request was in flight at these moments.",
)
INDEX = gauge_of_routers(
    id="index",
    title="Blocks the router remembers",
    about=f"For each worker. At most {TOP} workers, the most.",
    lines=(PanelLine("index_blocks_by_worker", by="worker"),),
    unit="count",
    metric=n.INDEX_BLOCKS,
    zero="The router's index is empty.",
)
LAG = gauge_of_routers(
    id="index-lag",
    title="KV event lag",
    about="From a worker's step to the router's index. Above 30 s the router falls back.",
    lines=(PanelLine("index_lag_by_worker", by="worker"),),
    unit="seconds",
    metric=n.INDEX_LAG,
    since=_KVAWARE,
)
KV_FALLBACKS = of_router(
    id="kv-fallbacks",
    title="Fallback decisions",
    about="Requests a second, by why kvaware could not tell.",
    lines=(PanelLine("kv_fallbacks_by_reason", by="reason"),),
    unit="per_s",
    metric=n.KV_FALLBACKS,
    since=_KVAWARE,
    kind="bars",
)
KV_RECOVERIES = replace(
    KV_FALLBACKS,
    id="kv-recoveries",
    title="Following the caches",
    about="Connections, gaps, replays and restarts a second while following KV events.",
    lines=(PanelLine("kv_recoveries_by_reason", by="reason"),),
    metric=n.KV_RECOVERIES,
)

_QUALITY = (MATCH, HONESTY, BY_CACHE, TTFT_P95_BY_CACHE)
_CARE = (ERRORS, RETRIES, OVERHEAD, QUEUED, QUEUE)
BOARD = Board(
    "routing",
    "Routing",
    "Why requests went where they went, and whether that was right.",
    "route",
    (
        PanelSection("Decisions", (REASONS_PANEL, STRATEGIES, FALLBACKS, FALLBACKS_BY_ENDPOINT)),
        PanelSection("Whether they were right", _QUALITY),
        PanelSection("What it costs and what went wrong", _CARE),
        PanelSection("Workers", (HEALTHY, HEALTHY_BY_ENDPOINT, KV_FALLBACKS)),
    ),
    (
        PanelSection("Decisions", (REASONS_PANEL, STRATEGIES, SHARE, BALANCE, SKEW, FALLBACKS)),
        PanelSection("Whether they were right", _QUALITY),
        PanelSection("What it costs and what went wrong", _CARE),
        PanelSection("Workers", (HEALTHY, IN_FLIGHT)),
        PanelSection("What it knows of caches", (INDEX, LAG, KV_FALLBACKS, KV_RECOVERIES)),
    ),
)
