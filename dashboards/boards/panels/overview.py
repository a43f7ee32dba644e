"""Panels of the Overview board: latency, errors, throughput and cache hit rates."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels.declarations import Board, PanelLine, PanelSection, Style
from dashboards.boards.panels.exporters import (
    ANSWERED,
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

_BUSIEST = f"At most {TOP} endpoints, the busiest."

_WORKERS_UP = PanelLine("workers_up", name="workers", style=Style("Workers up", GREEN))
_WAITING = PanelLine("waiting", name="waiting", style=Style("Waiting", ORANGE))
FLEET_NOW = gauge_of_workers(
    id="now",
    title="Running now",
    about="Current: endpoints with a worker up, workers up, and requests waiting.",
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
    about="Current: workers up, requests running, and requests waiting.",
    lines=(
        _WORKERS_UP,
        PanelLine("running", name="running", style=Style("Running", BLUE)),
        _WAITING,
    ),
)
GOOD = of_prompts(
    id="good",
    title="Service quality",
    about="Over the whole range: cached prompt tokens, TTFT within 1 s, 5xx responses.",
    lines=(
        PanelLine("reuse", name="reuse", style=Style("Prefix cache hit rate", GREEN)),
        PanelLine("on_time", name="on_time", style=Style("TTFT within 1 s", BLUE)),
        PanelLine("failed_share", name="failed", style=Style("Failed", RED)),
    ),
    unit="share",
    metric=n.PROMPT,
    kind="numbers",
    zero="Prompts were processed: none was cached, none had its first token within 1 s.",
)
TTFT = of_workers(
    id="ttft",
    title="Time to first token",
    about="From arrival at the worker, waiting included. p90: nine in ten were quicker.",
    lines=percents("ttft", *QUANTILES),
    unit="seconds",
    metric=f"{n.TTFT}_count",
    styles=QUANTILES,
)
SOURCES = of_prompts(
    id="sources",
    title="Prompt tokens by source",
    about="Tokens found in a tier were not computed again. Together they are 100 %.",
    lines=(PanelLine("prompt_share_by_source", by="tier"),),
    unit="share",
    metric=n.CACHED,
    or_metrics=(n.BY_SOURCE, n.PREFIX_QUERIES, n.PREFIX_QUERIES_OLD),
    kind="stacked",
    styles=TIERS,
)
SHARE = of_router(
    id="share",
    title="Share of each worker",
    about=f"Of all requests routed. At most {TOP} workers, the busiest.",
    lines=(PanelLine("share_by_worker", by="worker"),),
    unit="share",
    metric=n.DECISIONS,
    of_whole=False,
)
REASONS_PANEL = of_router(
    id="decisions",
    title="Routing reasons",
    about="Decisions a second. Much grey, orange or red: caches are hardly used.",
    lines=(PanelLine("decisions_by_reason", by="reason"),),
    unit="per_s",
    metric=n.DECISIONS,
    kind="stacked",
    styles=REASONS,
)
BY_CACHE = of_router(
    id="ttft-cache",
    title="Time to first token by what was cached",
    about="Half of the streamed answers began within this time, as the router saw it.",
    lines=(PanelLine("ttft_by_cache", by="cache"),),
    unit="seconds",
    metric=f"{n.ROUTER_TTFT}_count",
    empty='None of the answers was streamed. Send a request with "stream": true.',
    styles=CACHE_STATES,
)
OUTCOME = of_router(
    id="requests",
    title="Requests a second",
    about="What the router answered its callers.",
    lines=(PanelLine("requests_by_outcome", by="outcome"),),
    unit="per_s",
    metric=n.REQUESTS,
    cause=ANSWERED,
    styles=OUTCOMES,
)
BY_ENDPOINT = replace(
    OUTCOME,
    about=f"By endpoint, as its router answered. {_BUSIEST}",
    lines=by_endpoint("requests", "endpoint"),
    styles={},
)
REUSE = of_prompts(
    id="reuse",
    title="Prefix cache hit rate",
    about=f"By endpoint, all tiers together. {_BUSIEST}",
    lines=by_endpoint("reuse"),
    unit="share",
    metric=n.BY_SOURCE,
    or_metrics=(n.PREFIX_QUERIES, n.PREFIX_QUERIES_OLD),
    zero="Prompts came, and no cache had any of their tokens.",
)
L2 = of_l2(
    id="l2",
    title="L2 cache tier",
    about="Blocks found of those asked for, and how full it is; of all tiers together.",
    lines=(
        PanelLine("l2_hit_share", name="found", style=Style("Found of asked for", ORANGE, "solid")),
        PanelLine("l2_fill", name="fill", style=Style("Filled", GREY, "dash")),
    ),
    unit="share",
    metric=n.L2_CAPACITY,
    zero="The tier is empty and had no hit.",
)
TTFT_BY_ENDPOINT = of_workers(
    id="ttft-endpoints",
    title="TTFT p95",
    about=f"p95 of each endpoint: one in twenty waited longer. {_BUSIEST}",
    lines=by_endpoint("ttft_p95"),
    unit="seconds",
    metric=f"{n.TTFT}_count",
)
ON_TIME_BY_ENDPOINT = of_workers(
    id="on-time",
    title="First token within a second",
    about=f"Share of each endpoint's requests. {_BUSIEST}",
    lines=by_endpoint("on_time"),
    unit="share",
    metric=f"{n.TTFT}_count",
    zero="Requests came, and none had its first token within a second.",
)
ON_TIME = replace(
    ON_TIME_BY_ENDPOINT,
    about="Share of requests.",
    lines=(PanelLine("on_time", name="on_time", style=Style("Within 1 s", BLUE)),),
)
FAILED_BY_ENDPOINT = of_router(
    id="failed",
    title="Failed requests",
    about=f"Share answered with 5xx, by endpoint. {_BUSIEST}",
    lines=by_endpoint("failed_share", "endpoint"),
    unit="share",
    metric=n.REQUESTS,
    cause=ANSWERED,
    of_whole=False,
    zero="Requests came, and none failed.",
)
WAITING_BY_ENDPOINT = gauge_of_workers(
    id="waiting",
    title="Requests waiting",
    about=f"Queued at the workers of each endpoint. {_BUSIEST}",
    lines=by_endpoint("waiting"),
    unit="count",
    metric=n.WAITING,
    zero="No request was queued at these moments.",
)
FINISHED_BY_ENDPOINT = of_workers(
    id="finished",
    title="Requests finished by workers",
    about=f"A second, by endpoint, also those which came by no router. {_BUSIEST}",
    lines=by_endpoint("finished"),
    unit="per_s",
    metric=n.FINISHED,
)
PROMPT_BY_ENDPOINT = of_prompts(
    id="prompt-tokens",
    title="Prompt tokens a second",
    about=f"By endpoint, those found in a cache too. {_BUSIEST}",
    lines=by_endpoint("prompt_tokens"),
    unit="tokens_per_s",
    metric=n.PROMPT,
)
GENERATED_BY_ENDPOINT = of_workers(
    id="generated-tokens",
    title="Generated tokens a second",
    about=f"By endpoint. {_BUSIEST}",
    lines=by_endpoint("generated_tokens"),
    unit="tokens_per_s",
    metric=n.GENERATED,
)
TOKENS = of_prompts(
    id="tokens",
    title="Tokens a second",
    about="Of prompts, those found in a cache too, and of answers.",
    lines=(
        PanelLine("prompt_tokens", name="prompt", style=Style("Prompt", SKY, "solid")),
        PanelLine("generated_tokens", name="generated", style=Style("Generated", PURPLE, "dash")),
    ),
    unit="tokens_per_s",
    metric=n.PROMPT,
)
ITL = of_workers(
    id="itl",
    title="Time between tokens",
    about="Each gap between two tokens of an answer.",
    lines=percents("itl", *QUANTILES),
    unit="seconds",
    metric=f"{n.ITL}_count",
    or_metrics=(f"{n.ITL_OLD}_count",),
    empty="No answer had a second token.",
    styles=QUANTILES,
)
E2E = replace(
    TTFT,
    id="e2e",
    title="Time of a whole request",
    about="At the worker, from arrival to the last token. Below 0.3 s vLLM does not tell apart.",
    lines=percents("e2e", *QUANTILES),
    metric=f"{n.E2E}_count",
)
WHERE_TIME_GOES = of_workers(
    id="phases",
    title="Where a request's time goes",
    about="Mean seconds of a request: waiting, reading the prompt, writing the answer.",
    lines=tuple(PanelLine(f"phase_{name}", name=name) for name in PHASES),
    unit="seconds",
    metric=f"{n.QUEUE_TIME}_count",
    kind="stacked",
    styles=PHASES,
)
FINISHED = of_workers(
    id="finished",
    title="How requests ended",
    about="A second. Length: the answer was cut at its limit. Abort: the caller went away.",
    lines=(PanelLine("finished_by_reason", by="finished_reason"),),
    unit="per_s",
    metric=n.FINISHED,
    kind="stacked",
    styles=FINISHES,
)
QUEUE = gauge_of_routers(
    id="queue",
    title="Router queue depth",
    about="Requests held back until a worker has room, and how many may.",
    lines=(
        PanelLine("queue_depth", name="depth", style=Style("Waiting", BLUE, "solid")),
        PanelLine("queue_limit", name="limit", style=Style("Limit", BROWN, "dash")),
    ),
    unit="count",
    metric=n.QUEUE_DEPTH,
    zero="No request was queued at these moments.",
)

# Links written before the titles were reworded.
_LATENCY_ANCHOR, _CACHE_ANCHOR = "what-callers-feel", "what-the-cache-does"

BOARD = Board(
    "overview",
    "Overview",
    "Latency, errors and cache.",
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
            "Work done", (FINISHED_BY_ENDPOINT, PROMPT_BY_ENDPOINT, GENERATED_BY_ENDPOINT)
        ),
    ),
    (
        PanelSection("", (NOW, GOOD)),
        PanelSection(
            "Latency and errors", (OUTCOME, TTFT, ITL, E2E, WHERE_TIME_GOES, QUEUE), _LATENCY_ANCHOR
        ),
        PanelSection("Cache", (SOURCES, BY_CACHE, SHARE, REASONS_PANEL), _CACHE_ANCHOR),
        PanelSection("Work done", (TOKENS, FINISHED, ON_TIME)),
    ),
)
