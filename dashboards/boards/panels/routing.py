"""Panels of the router: decisions, their reasons and their accuracy."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels.declarations import Board, PanelLine, PanelSection, Style
from dashboards.boards.panels.exporters import by_endpoint, gauge_of_routers, of_prompts, of_router
from dashboards.boards.panels.overview import BY_CACHE, QUEUE, REASONS_PANEL, SHARE
from dashboards.boards.panels.styles import BLUE, GREEN, ORANGE, RED
from dashboards.boards.queries import TOP
from dashboards.boards.queries import metric_names as n

_KVAWARE = "Emberline router, with strategy kvaware"

STRATEGIES = of_router(
    id="strategies",
    title="Decisions by strategy",
    about="Decisions/s by strategy and reason.",
    lines=(PanelLine("decisions_by_strategy_reason", by="strategy_reason"),),
    unit="per_s",
    metric=n.DECISIONS,
)
BALANCE = of_router(
    id="imbalance",
    title="Load imbalance (max/mean)",
    about="Requests of the busiest worker over the mean. 1: balanced; above 2: investigate.",
    lines=(PanelLine("imbalance", name="imbalance", style=Style("Max/mean", BLUE)),),
    unit="count",
    metric=n.DECISIONS,
)
SKEW = of_prompts(
    id="prompt-skew",
    title="Prompt token imbalance",
    about="Standard deviation over mean of prompt tokens per worker. 0: balanced.",
    lines=(PanelLine("prompt_skew", name="skew", style=Style("Stddev/mean", BLUE)),),
    unit="count",
    metric=n.PROMPT,
    zero="All workers processed equally many prompt tokens.",
)
FALLBACKS = of_router(
    id="fallbacks",
    title="Fallback rate",
    about="Share of decisions made without cache affinity.",
    lines=(PanelLine("fallback_share", name="share", style=Style("Fallback", ORANGE)),),
    unit="share",
    metric=n.DECISIONS,
    zero="No decision was a fallback.",
)
FALLBACKS_BY_ENDPOINT = replace(
    FALLBACKS,
    id="fallbacks-endpoints",
    title="Fallback rate by endpoint",
    about=f"Share of decisions made without cache affinity. The {TOP} busiest endpoints.",
    lines=by_endpoint("fallback_share", "endpoint"),
)
MATCH = of_router(
    id="match",
    title="Prefix match ratio p50",
    about="Matched share of the prompt at the selected worker, per the router's index.",
    lines=(PanelLine("match_ratio_by_strategy", by="strategy"),),
    unit="share",
    metric=f"{n.MATCH_RATIO}_count",
    zero="Most requests matched no cached prefix.",
)
HONESTY = of_router(
    id="kept-promises",
    title="Cache prediction accuracy",
    about="Cached tokens reported by workers over tokens predicted by the router. 1: exact.",
    lines=(PanelLine("kept_promises", name="kept", style=Style("Reported/predicted", GREEN)),),
    unit="count",
    metric=n.ROUTER_PREDICTED,
    empty="The router predicted no cached tokens, or workers do not report them.",
    zero="The router predicted cached tokens; workers reported none.",
)
OVERHEAD = of_router(
    id="overhead",
    title="Router overhead p99",
    about="Time before a request is forwarded, by strategy.",
    lines=(PanelLine("overhead_p99_by_strategy", by="strategy"),),
    unit="seconds",
    metric=f"{n.OVERHEAD}_count",
)
QUEUED = of_router(
    id="queued",
    title="Router queue time p95",
    about="All requests, those not queued included.",
    lines=(PanelLine("queued_p95", name="p95", style=Style("p95", ORANGE)),),
    unit="seconds",
    metric=f"{n.QUEUED_FOR}_count",
    empty="The router recorded no queue times.",
)
TTFT_P95_BY_CACHE = replace(
    BY_CACHE,
    id="ttft-cache-p95",
    title="TTFT p95 by cache state",
    about="Streamed responses, measured at the router.",
    lines=(PanelLine("ttft_p95_by_cache", by="cache"),),
)
ERRORS = of_router(
    id="errors",
    title="Errors by reason",
    about="Errors/s counted by the router, including those without a response.",
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
    about="Retries/s by failure of the first worker.",
    lines=(PanelLine("retries_by_reason", by="reason"),),
    metric=n.RETRIES,
    empty="No retries.",
)
HEALTHY = gauge_of_routers(
    id="healthy",
    title="Healthy workers",
    about="Workers that pass the router's health checks, and open circuits.",
    lines=(
        PanelLine("workers_healthy", name="healthy", style=Style("Healthy", GREEN, "solid")),
        PanelLine("circuits_open", name="open", style=Style("Circuit open", RED, "dot")),
    ),
    unit="count",
    metric=n.WORKER_UP,
    zero="No workers are healthy.",
)
HEALTHY_BY_ENDPOINT = replace(
    HEALTHY,
    id="healthy-endpoints",
    title="Healthy workers by endpoint",
    about=f"Workers that pass the router's health checks. The {TOP} busiest endpoints.",
    lines=by_endpoint("workers_healthy", "endpoint"),
)
IN_FLIGHT = gauge_of_routers(
    id="in-flight",
    title="In-flight requests",
    about=f"By worker, counted by the router. The {TOP} highest.",
    lines=(PanelLine("in_flight_by_worker", by="worker"),),
    unit="count",
    metric=n.IN_FLIGHT,
    zero="No requests were in flight.",
)
INDEX = gauge_of_routers(
    id="index",
    title="Index size (blocks)",
    about=f"KV blocks in the router's index by worker. The {TOP} highest.",
    lines=(PanelLine("index_blocks_by_worker", by="worker"),),
    unit="count",
    metric=n.INDEX_BLOCKS,
    zero="The router's index is empty.",
)
LAG = gauge_of_routers(
    id="index-lag",
    title="KV event lag",
    about="From an engine step to the router's index. Above 30 s the router falls back.",
    lines=(PanelLine("index_lag_by_worker", by="worker"),),
    unit="seconds",
    metric=n.INDEX_LAG,
    since=_KVAWARE,
)
KV_FALLBACKS = of_router(
    id="kv-fallbacks",
    title="KV-aware fallbacks/s",
    about="Requests routed without KV cache contents, by reason.",
    lines=(PanelLine("kv_fallbacks_by_reason", by="reason"),),
    unit="per_s",
    metric=n.KV_FALLBACKS,
    since=_KVAWARE,
    kind="bars",
    empty="No KV-aware fallbacks.",
)
KV_RECOVERIES = replace(
    KV_FALLBACKS,
    id="kv-recoveries",
    title="KV event recoveries/s",
    about="Connections, gaps, replays and restarts of KV event streams.",
    lines=(PanelLine("kv_recoveries_by_reason", by="reason"),),
    metric=n.KV_RECOVERIES,
    empty="No recoveries.",
)

COMPUTED = of_router(
    id="computed-by-cause",
    title="Computed prompt tokens by cause",
    about="Each computed token has one cause; the endpoint's Misses page has price and remedy.",
    lines=(PanelLine("computed_tokens_by_cause", by="cause"),),
    unit="tokens_per_s",
    metric=n.ROUTER_COMPUTED,
    kind="stacked",
    empty="No prompt tokens were computed, or workers do not report cached tokens.",
)

_QUALITY = (MATCH, HONESTY, BY_CACHE, TTFT_P95_BY_CACHE)
_CARE = (ERRORS, RETRIES, OVERHEAD, QUEUED, QUEUE)
# Links written before the titles were reworded.
_QUALITY_ANCHOR = "whether-they-were-right"
_CARE_ANCHOR = "what-it-costs-and-what-went-wrong"
BOARD = Board(
    "routing",
    "Routing",
    "Routing decisions, their accuracy, and router health.",
    "route",
    (
        PanelSection("Decisions", (REASONS_PANEL, STRATEGIES, FALLBACKS, FALLBACKS_BY_ENDPOINT)),
        PanelSection("Prediction accuracy", (*_QUALITY, COMPUTED), _QUALITY_ANCHOR),
        PanelSection("Overhead and errors", _CARE, _CARE_ANCHOR),
        PanelSection("Workers", (HEALTHY, HEALTHY_BY_ENDPOINT, KV_FALLBACKS)),
    ),
    (
        PanelSection("Decisions", (REASONS_PANEL, STRATEGIES, SHARE, BALANCE, SKEW, FALLBACKS)),
        PanelSection("Prediction accuracy", (*_QUALITY, COMPUTED), _QUALITY_ANCHOR),
        PanelSection("Overhead and errors", _CARE, _CARE_ANCHOR),
        PanelSection("Workers", (HEALTHY, IN_FLIGHT)),
        PanelSection(
            "KV index", (INDEX, LAG, KV_FALLBACKS, KV_RECOVERIES), "what-it-knows-of-caches"
        ),
    ),
)
