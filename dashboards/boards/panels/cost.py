"""Panels of endpoint costs and cache savings at the current rate."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dashboards.boards.panels.declarations import (
    Board,
    Panel,
    PanelLine,
    PanelSection,
    Style,
    UnpricedPanel,
)
from dashboards.boards.panels.exporters import ANSWERED, of_gpus, of_prompts, of_router, of_workers
from dashboards.boards.panels.gpus import ENGINE
from dashboards.boards.panels.styles import BLUE, GREY, SOURCES, TIERS
from dashboards.boards.queries import TOP
from dashboards.boards.queries import metric_names as n

_PRICED = "Price of the machines, idle or not"
_NO_PRICE = "In USD once the instance type has a price."
_SAVED = (
    "Callers' cached prompt tokens × calibrated prefill cost, before load time and cache tier cost."
)
_NO_SLOPE = "In USD after calibration, once the instance type has a price."

_money = partial(of_workers, metric=n.RUNNING)
_of_callers = partial(of_router, cause=ANSWERED)


def _per(key: str, what: str, query: str, metric: str, phase: str = "") -> Panel:
    share = f", for the share of {phase} in the requests' time" if phase else ""
    return _of_callers(
        id=f"usd-per-{key}",
        title=f"Cost per {what} (USD)",
        about=f"{_PRICED}{share}, over callers' throughput. Unit cost is high at low load.",
        lines=(
            PanelLine(f"worker_hours_per_{query}", by="endpoint_name", factor="worker_usd_hour"),
        ),
        unit="usd",
        metric=metric,
        unpriced=UnpricedPanel(f"Worker hours per {what}", "count", _NO_PRICE),
    )


HOUR = _money(
    id="usd-hour",
    title="Hourly cost (USD/h)",
    about=f"{_PRICED}, of the current workers. At most {TOP} endpoints.",
    lines=(PanelLine("workers_by_endpoint", by="endpoint_name", factor="worker_usd_hour"),),
    unit="usd_hour",
    metric="up",
    cause=None,
    zero="The price of these machines is 0.",
    unpriced=UnpricedPanel("Workers", "count", _NO_PRICE),
)
IDLE = _money(
    id="usd-idle",
    title="Hourly cost of idle workers (USD/h)",
    about=f"{_PRICED}, of workers without a request.",
    lines=(PanelLine("idle_workers_by_endpoint", by="endpoint_name", factor="worker_usd_hour"),),
    unit="usd_hour",
    cause=None,
    zero="Every worker had a request.",
    unpriced=UnpricedPanel("Idle workers", "count", _NO_PRICE),
)
IDLE_SHARE = replace(
    IDLE,
    id="idle-share",
    title="Idle workers (share)",
    about="Workers without a request, as a share of all.",
    lines=(PanelLine("idle_share_by_endpoint", by="endpoint_name"),),
    unit="share",
    unpriced=None,
)
PER_OUTPUT = _per("output", "1M output tokens", "million_output", n.ROUTER_COMPLETION, "decode")
PER_INPUT = _per("input", "1M input tokens", "million_input", n.ROUTER_COMPUTED, "prefill")
PER_TOKEN = _per("token", "1M tokens", "million_tokens", n.ROUTER_COMPUTED)
PER_REQUEST = _per("request", "1k requests", "thousand_requests", n.REQUESTS)
SAVED = _of_callers(
    id="usd-saved",
    title="Prefill cost saved (USD/h)",
    about=_SAVED,
    lines=(PanelLine("reused_tokens_hour", by="endpoint_name", factor="saved_usd_token"),),
    unit="usd_hour",
    metric=n.ROUTER_CACHED,
    zero="No prompt token was found in a cache.",
    unpriced=UnpricedPanel("Cached prompt tokens per hour", "tokens", _NO_SLOPE),
)
SAVED_BY_TIER = _of_callers(
    id="usd-saved-tiers",
    title="Prefill cost saved by tier (USD/h)",
    about=_SAVED,
    lines=(PanelLine("reused_tokens_hour_by_tier", by="tier", factor="saved_usd_token"),),
    unit="usd_hour",
    metric=n.ROUTER_CACHED,
    kind="stacked",
    styles=TIERS,
    zero="No prompt token was found in a cache.",
    unpriced=UnpricedPanel("Cached prompt tokens per hour by tier", "tokens", _NO_SLOPE),
)
REUSED_DAY = of_prompts(
    id="tokens-reused-day",
    title="Cached prompt tokens per day",
    about="Sum of the preceding 24 h, by source.",
    lines=(PanelLine("reused_tokens_day_by_tier", by="source"),),
    unit="tokens",
    metric=n.CACHED,
    since="vLLM 0.32",
    styles=SOURCES,
    zero="No prompt tokens were cached.",
)
SECONDS_PER_TOKEN = of_prompts(
    id="prefill-seconds",
    title="Prefill time per computed token (s)",
    about="Upper bound, as it includes the fixed cost of each engine step. Calibration is exact.",
    lines=(
        PanelLine(
            "prefill_seconds_per_token", name="seconds", style=Style("Per computed token", BLUE)
        ),
    ),
    unit="seconds",
    metric=f"{n.COMPUTED_TOKENS}_count",
    since="vLLM 0.13",
)
AVOIDED = of_prompts(
    id="prefill-avoided",
    title="Prefill time avoided (s/s)",
    about="Upper bound: cached prompt tokens/s × prefill time per computed token.",
    lines=(
        PanelLine("prefill_seconds_avoided", name="avoided", style=Style("Prefill avoided", BLUE)),
    ),
    unit="seconds",
    metric=n.CACHED_ALL,
    since="vLLM 0.16",
)
GPU_IDLE = of_gpus(
    id="gpu-idle-share",
    title="GPU idle time (share)",
    about="Share of time in which the GPU engine does nothing.",
    lines=(PanelLine("gpu_idle_share", name="idle", style=Style("Idle", GREY)),),
    unit="share",
    metric=ENGINE.metric,
)

_SPENT = (HOUR, IDLE, IDLE_SHARE, GPU_IDLE)
_RATES = (PER_OUTPUT, PER_INPUT, PER_TOKEN, PER_REQUEST)
_ONE_SAVED = (SAVED_BY_TIER, REUSED_DAY, SECONDS_PER_TOKEN, AVOIDED)
BOARD = Board(
    "cost",
    "Cost",
    "Endpoint costs and cache savings.",
    "scale",
    (
        PanelSection("Cost", _SPENT, "spent"),
        PanelSection("Unit cost", _RATES, "for-what-was-served"),
        PanelSection("Cache savings", (SAVED, REUSED_DAY), "saved-by-caches"),
    ),
    (
        PanelSection("Cost", _SPENT, "spent"),
        PanelSection("Unit cost", _RATES, "for-what-was-served"),
        PanelSection("Cache savings", _ONE_SAVED, "saved-by-the-cache"),
    ),
)
