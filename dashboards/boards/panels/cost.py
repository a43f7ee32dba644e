"""Panels of endpoint costs and cache savings at the current rate."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dashboards.boards.panels.declarations import Board, Panel, PanelLine, PanelSection, Style
from dashboards.boards.panels.exporters import PROMPTS, of_gpus, of_prompts, of_workers
from dashboards.boards.panels.gpus import ENGINE
from dashboards.boards.panels.styles import BLUE, GREY, SOURCES, TIERS
from dashboards.boards.queries import TOP
from dashboards.boards.queries import metric_names as n

_PRICED = "List price of the instances, idle time included"

_money = partial(of_workers, metric=n.RUNNING)


def _per(key: str, what: str, query: str, metric: str) -> Panel:
    return _money(
        id=f"usd-per-{key}",
        title=f"Cost per {what}",
        about=f"{_PRICED}, over current throughput. Unit cost is high at low load.",
        lines=(
            PanelLine(f"worker_hours_per_{query}", by="endpoint_name", factor="worker_usd_hour"),
        ),
        unit="usd",
        metric=metric,
    )


HOUR = _money(
    id="usd-hour",
    title="Hourly cost",
    about=f"{_PRICED}, of current workers. At most {TOP} endpoints.",
    lines=(PanelLine("workers_by_endpoint", by="endpoint_name", factor="worker_usd_hour"),),
    unit="usd_hour",
    metric="up",
    cause=None,
    zero="The price is 0.",
)
IDLE = _money(
    id="usd-idle",
    title="Hourly cost of idle workers",
    about="List price of the instances of workers without a request.",
    lines=(PanelLine("idle_workers_by_endpoint", by="endpoint_name", factor="worker_usd_hour"),),
    unit="usd_hour",
    cause=None,
    zero="No worker was idle.",
)
IDLE_SHARE = replace(
    IDLE,
    id="idle-share",
    title="Idle workers",
    about="Share of workers without a request.",
    lines=(PanelLine("idle_share_by_endpoint", by="endpoint_name"),),
    unit="share",
)
PER_OUTPUT = _per("output", "1M generated tokens", "million_output", n.GENERATED)
PER_INPUT = _per("input", "1M prompt tokens", "million_input", n.PROMPT)
PER_TOKEN = _per("token", "1M tokens", "million_tokens", n.PROMPT)
PER_REQUEST = _per("request", "1,000 requests", "thousand_requests", f"{n.E2E}_count")
SAVED = _money(
    id="usd-saved",
    title="Compute saved per hour",
    about="Cached tokens times the calibrated cost per token; load and tier costs not deducted.",
    lines=(PanelLine("reused_tokens_hour", by="endpoint_name", factor="saved_usd_token"),),
    unit="usd_hour",
    metric=n.CACHED_ALL,
    since="vLLM 0.16",
    cause=PROMPTS,
    zero="No prompt tokens were cached.",
)
SAVED_BY_TIER = of_prompts(
    id="usd-saved-tiers",
    title="Compute saved per hour by tier",
    about="Cached tokens times the calibrated cost per token; load and tier costs not deducted.",
    lines=(PanelLine("reused_tokens_hour_by_tier", by="tier", factor="saved_usd_token"),),
    unit="usd_hour",
    metric=n.CACHED,
    or_metrics=(n.BY_SOURCE,),
    since="vLLM 0.16",
    kind="stacked",
    styles=TIERS,
    zero="No prompt tokens were cached.",
)
REUSED_DAY = of_prompts(
    id="tokens-reused-day",
    title="Cached prompt tokens (24 h)",
    about="Sum of the preceding 24 h, by tier.",
    lines=(PanelLine("reused_tokens_day_by_tier", by="source"),),
    unit="tokens",
    metric=n.CACHED,
    since="vLLM 0.32",
    styles=SOURCES,
    zero="No prompt tokens were cached.",
)
SECONDS_PER_TOKEN = of_prompts(
    id="prefill-seconds",
    title="Prefill time per token",
    about="Upper bound: includes the fixed cost of each step. Calibrate on the Costs page.",
    lines=(PanelLine("prefill_seconds_per_token", name="seconds", style=Style("Per token", BLUE)),),
    unit="seconds",
    metric=f"{n.COMPUTED_TOKENS}_count",
    since="vLLM 0.13",
)
AVOIDED = of_prompts(
    id="prefill-avoided",
    title="Prefill time avoided (s/s)",
    about="Cached tokens times the prefill time per token; upper bound.",
    lines=(PanelLine("prefill_seconds_avoided", name="avoided", style=Style("Avoided", BLUE)),),
    unit="seconds",
    metric=n.CACHED_ALL,
    since="vLLM 0.16",
)
GPU_IDLE = of_gpus(
    id="gpu-idle-share",
    title="GPU idle time",
    about="Share of time without an active GPU engine.",
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
