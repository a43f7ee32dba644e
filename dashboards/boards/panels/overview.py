"""Panels of the Overview board: latency, errors, throughput and cache hit rates."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels.declarations import Board, PanelLine, PanelSection, Style
from dashboards.boards.panels.exporters import (
    ANSWERED,
    NOT_STREAMED,
    by_endpoint,
    gauge_of_routers,
    gauge_of_workers,
    of_l2,
    of_prompts,
    of_router,
    of_workers,
    percents,
)
from dashboards.boards.panels.styles import (
    BLUE,
    BROWN,
    CACHE_STATES,
    FINISHES,
    GREEN,
    GREY,
    ORANGE,
    OUTCOMES,
    PHASES,
    PURPLE,
    QUANTILES,
    REASONS,
    RED,
    SKY,
    TIERS,
)
from dashboards.boards.queries import TOP
from dashboards.boards.queries import metric_names as n

_BUSIEST = f"The {TOP} busiest endpoints."

_WORKERS_UP = PanelLine("workers_up", name="workers", style=Style("Workers up", GREEN))
_WAITING = PanelLine("waiting", name="waiting", style=Style("Requests queued", ORANGE))
FLEET_NOW = gauge_of_workers(
    id="now",
    title="Current state",
    about="Endpoints with at least one worker up, workers up, and queued requests.",
    lines=(
        PanelLine("endpoints_up", name="endpoints", style=Style("Endpoints up", BLUE)),
        _WORKERS_UP,
        _WAITING,
    ),
    unit="count",
    metric=n.RUNNING,
    kind="numbers",
)
NOW = replace(
    FLEET_NOW,
    about="Workers up, running requests and queued requests.",
    lines=(
        _WORKERS_UP,
        PanelLine("running", name="running", style=Style("Requests running", BLUE)),
        _WAITING,
    ),
)
GOOD = of_router(
    id="good",
    title="Service quality",
    about="Callers' requests, whole range: cached prompt tokens, TTFT ≤ 1 s, 5xx responses.",
    lines=(
        PanelLine("reuse", name="reuse", style=Style("Cache hit rate", GREEN)),
        PanelLine("on_time", name="on_time", style=Style("TTFT ≤ 1 s", BLUE)),
        PanelLine("failed_share", name="failed", style=Style("Error rate (5xx)", RED)),
    ),
    unit="share",
    metric=n.REQUESTS,
    cause=ANSWERED,
    kind="numbers",
    zero="Requests were answered: no cache hit, no TTFT within 1 s.",
)
TTFT = of_router(
    id="ttft",
    title="Time to first token",
    about="Streamed responses to callers, measured at the router.",
    lines=percents("ttft", *QUANTILES),
    unit="seconds",
    metric=f"{n.ROUTER_TTFT}_count",
    cause=ANSWERED,
    empty=NOT_STREAMED,
    styles=QUANTILES,
)
SOURCES = of_router(
    id="sources",
    title="Prompt tokens by source",
    about="Share of callers' prompt tokens read from each cache tier, or computed.",
    lines=(PanelLine("prompt_share_by_source", by="tier"),),
    unit="share",
    metric=n.ROUTER_COMPUTED,
    cause=ANSWERED,
    kind="stacked",
    styles=TIERS,
)
SHARE = of_router(
    id="share",
    title="Request share by worker",
    about=f"Share of routed requests. The {TOP} busiest workers.",
    lines=(PanelLine("share_by_worker", by="worker"),),
    unit="share",
    metric=n.DECISIONS,
    of_whole=False,
)
REASONS_PANEL = of_router(
    id="decisions",
    title="Routing reasons",
    about="Decisions/s by reason. Mostly grey, orange or red: low cache affinity.",
    lines=(PanelLine("decisions_by_reason", by="reason"),),
    unit="per_s",
    metric=n.DECISIONS,
    kind="stacked",
    styles=REASONS,
)
BY_CACHE = of_router(
    id="ttft-cache",
    title="TTFT p50 by cache state",
    about="Streamed responses, measured at the router.",
    lines=(PanelLine("ttft_by_cache", by="cache"),),
    unit="seconds",
    metric=f"{n.ROUTER_TTFT}_count",
    empty=NOT_STREAMED,
    styles=CACHE_STATES,
)
OUTCOME = of_router(
    id="requests",
    title="Requests/s",
    about="Responses to callers by status class. Console: benchmarks, cache proof, calibrations.",
    lines=(
        PanelLine("requests_by_outcome", by="outcome"),
        PanelLine("requests_of_console", name="console"),
    ),
    unit="per_s",
    metric=n.REQUESTS,
    cause=ANSWERED,
    styles=OUTCOMES,
)
BY_ENDPOINT = replace(
    OUTCOME,
    about=f"Responses of the routers by endpoint. {_BUSIEST}",
    lines=by_endpoint("requests", "endpoint"),
    styles={},
)
REUSE = of_router(
    id="reuse",
    title="Cache hit rate (prompt tokens)",
    about=f"Callers' requests, all tiers, by endpoint. {_BUSIEST}",
    lines=by_endpoint("reuse", "endpoint"),
    unit="share",
    metric=n.ROUTER_COMPUTED,
    cause=ANSWERED,
    zero="Requests were answered without a cache hit.",
)
L2 = of_l2(
    id="l2",
    title="L2 cache tier",
    about="Block hit rate and utilization, all L2 tiers.",
    lines=(
        PanelLine("l2_hit_share", name="found", style=Style("Hit rate", ORANGE, "solid")),
        PanelLine("l2_fill", name="fill", style=Style("Utilization", GREY, "dash")),
    ),
    unit="share",
    metric=n.L2_CAPACITY,
    zero="The tier is empty and had no hits.",
)
TTFT_BY_ENDPOINT = replace(
    TTFT,
    id="ttft-endpoints",
    title="TTFT p95 by endpoint",
    about=f"Streamed responses to callers, measured at the router. {_BUSIEST}",
    lines=by_endpoint("ttft_p95", "endpoint"),
    styles={},
)
ON_TIME_BY_ENDPOINT = replace(
    TTFT_BY_ENDPOINT,
    id="on-time",
    title="TTFT within 1 s",
    about=f"Share of callers' streamed responses, by endpoint. {_BUSIEST}",
    lines=by_endpoint("on_time", "endpoint"),
    unit="share",
    zero="No request had its first token within 1 s.",
)
ON_TIME = replace(
    ON_TIME_BY_ENDPOINT,
    about="Share of callers' streamed responses.",
    lines=(PanelLine("on_time", name="on_time", style=Style("TTFT ≤ 1 s", BLUE)),),
)
FAILED_BY_ENDPOINT = of_router(
    id="failed",
    title="Error rate (5xx)",
    about=f"Share of responses with status 5xx, by endpoint. {_BUSIEST}",
    lines=by_endpoint("failed_share", "endpoint"),
    unit="share",
    metric=n.REQUESTS,
    cause=ANSWERED,
    of_whole=False,
    zero="No request failed.",
)
WAITING_BY_ENDPOINT = gauge_of_workers(
    id="waiting",
    title="Queued requests",
    about=f"Waiting at workers, by endpoint. {_BUSIEST}",
    lines=by_endpoint("waiting"),
    unit="count",
    metric=n.WAITING,
    zero="No requests were queued.",
)
FINISHED_BY_ENDPOINT = of_workers(
    id="finished",
    title="Finished requests/s",
    about=f"Counted by workers, direct requests included. {_BUSIEST}",
    lines=by_endpoint("finished"),
    unit="per_s",
    metric=n.FINISHED,
)
PROMPT_BY_ENDPOINT = of_prompts(
    id="prompt-tokens",
    title="Prompt tokens/s",
    about=f"By endpoint, cached tokens included. {_BUSIEST}",
    lines=by_endpoint("prompt_tokens"),
    unit="tokens_per_s",
    metric=n.PROMPT,
)
GENERATED_BY_ENDPOINT = of_workers(
    id="generated-tokens",
    title="Generated tokens/s",
    about=f"By endpoint. {_BUSIEST}",
    lines=by_endpoint("generated_tokens"),
    unit="tokens_per_s",
    metric=n.GENERATED,
)
TOKENS = of_prompts(
    id="tokens",
    title="Tokens/s",
    about="Counted by workers, all requests: prompt tokens, cached ones included, and generated.",
    lines=(
        PanelLine("prompt_tokens", name="prompt", style=Style("Prompt", SKY, "solid")),
        PanelLine("generated_tokens", name="generated", style=Style("Generated", PURPLE, "dash")),
    ),
    unit="tokens_per_s",
    metric=n.PROMPT,
)
ITL = of_workers(
    id="itl",
    title="Inter-token latency",
    about="Time between consecutive tokens of a response.",
    lines=percents("itl", *QUANTILES),
    unit="seconds",
    metric=f"{n.ITL}_count",
    or_metrics=(f"{n.ITL_OLD}_count",),
    empty="No response had a second token.",
    styles=QUANTILES,
)
E2E = of_workers(
    id="e2e",
    title="E2E latency",
    about="From arrival at the worker to the last token. vLLM's smallest bucket is 0.3 s.",
    lines=percents("e2e", *QUANTILES),
    unit="seconds",
    metric=f"{n.E2E}_count",
    styles=QUANTILES,
)
WHERE_TIME_GOES = of_workers(
    id="phases",
    title="Request time by phase",
    about="Mean time per request in queue, prefill and decode.",
    lines=tuple(PanelLine(f"phase_{name}", name=name) for name in PHASES),
    unit="seconds",
    metric=f"{n.QUEUE_TIME}_count",
    kind="stacked",
    styles=PHASES,
)
FINISHED = of_workers(
    id="finished",
    title="Finish reasons",
    about="Finished requests/s by reason.",
    lines=(PanelLine("finished_by_reason", by="finished_reason"),),
    unit="per_s",
    metric=n.FINISHED,
    kind="stacked",
    styles=FINISHES,
)
QUEUE = gauge_of_routers(
    id="queue",
    title="Router queue depth",
    about="Requests held until a worker has capacity, and the queue limit.",
    lines=(
        PanelLine("queue_depth", name="depth", style=Style("Queue depth", BLUE, "solid")),
        PanelLine("queue_limit", name="limit", style=Style("Limit", BROWN, "dash")),
    ),
    unit="count",
    metric=n.QUEUE_DEPTH,
    zero="No requests were queued.",
)

# Links written before the titles were reworded.
_LATENCY_ANCHOR, _CACHE_ANCHOR = "what-callers-feel", "what-the-cache-does"
_WORK_ANCHOR = "work-done"

BOARD = Board(
    "overview",
    "Overview",
    "Latency, errors, throughput and cache hit rates.",
    "chart-line",
    (
        PanelSection("", (FLEET_NOW, GOOD)),
        PanelSection(
            "Latency and errors",
            (
                BY_ENDPOINT,
                TTFT,
                TTFT_BY_ENDPOINT,
                ON_TIME_BY_ENDPOINT,
                FAILED_BY_ENDPOINT,
                WAITING_BY_ENDPOINT,
            ),
            _LATENCY_ANCHOR,
        ),
        PanelSection("Cache", (SOURCES, REUSE, REASONS_PANEL, L2, SHARE), _CACHE_ANCHOR),
        PanelSection(
            "Throughput",
            (FINISHED_BY_ENDPOINT, PROMPT_BY_ENDPOINT, GENERATED_BY_ENDPOINT),
            _WORK_ANCHOR,
        ),
    ),
    (
        PanelSection("", (NOW, GOOD)),
        PanelSection(
            "Latency and errors", (OUTCOME, TTFT, ITL, E2E, WHERE_TIME_GOES, QUEUE), _LATENCY_ANCHOR
        ),
        PanelSection("Cache", (SOURCES, BY_CACHE, SHARE, REASONS_PANEL), _CACHE_ANCHOR),
        PanelSection("Throughput", (TOKENS, FINISHED, ON_TIME), _WORK_ANCHOR),
    ),
)
