"""Panels of endpoint costs and cache savings at the current rate."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dashboards.boards.panels.declarations import Board, Panel, PanelLine, PanelSection, Style
from dashboards.boards.panels.exporters import PROMPTS, of_gpus, of_prompts, of_workers
from dashboards.boards.panels.gpus import ENGINE
from dashboards.boards.panels.styles import BLUE, GREY, ORANGE, TIERS
from dashboards.boards.queries import TOP
from dashboards.boards.queries import metric_names as n

_PRICED = "List price of its machines, idle or not"

_money = partial(of_workers, metric=n.RUNNING)


def _per(key: str, what: str, query: str, metric: str) -> Panel:
    return _money(
        id=f"usd-per-{key}",
        title=f"Cost of {what}",
        about=f"{_PRICED}, over what was served at the moment. Unit cost is high at low load.",
        lines=(
            PanelLine(f"worker_hours_per_{query}", by="endpoint_name", factor="worker_usd_hour"),
        ),
        unit="usd",
        metric=metric,
    )


HOUR = _money(
    id="usd-hour",
    title="Cost an hour",
    about=f"{_PRICED}, of the workers known at the moment. At most {TOP} endpoints.",
    lines=(PanelLine("workers_by_endpoint", by="endpoint_name", factor="worker_usd_hour"),),
    unit="usd_hour",
    metric="up",
    cause=None,
    zero="Their price is 0.",
)
IDLE = _money(
    id="usd-idle",
    title="Cost of idle workers an hour",
    about=f"{_PRICED}, of workers without a request at the moment.",
    lines=(PanelLine("idle_workers_by_endpoint", by="endpoint_name", factor="worker_usd_hour"),),
    unit="usd_hour",
    cause=None,
    zero="Every worker had a request.",
)
IDLE_SHARE = replace(
    IDLE,
    id="idle-share",
    title="Share of idle workers",
    about="Without a request at the moment.",
    lines=(PanelLine("idle_share_by_endpoint", by="endpoint_name"),),
    unit="share",
)
PER_OUTPUT = _per("output", "a million generated tokens", "million_output", n.GENERATED)
PER_INPUT = _per("input", "a million prompt tokens", "million_input", n.PROMPT)
PER_TOKEN = _per("token", "a million tokens", "million_tokens", n.PROMPT)
PER_REQUEST = _per("request", "a thousand requests", "thousand_requests", f"{n.E2E}_count")
SAVED = _money(
    id="usd-saved",
    title="Computing saved by the cache, an hour",
    about="Tokens not computed again, times what one costs as measured. Loads and tiers not off.",
    lines=(PanelLine("reused_tokens_hour", by="endpoint_name", factor="saved_usd_token"),),
    unit="usd_hour",
    metric=n.CACHED_ALL,
    since="vLLM 0.16",
    cause=PROMPTS,
    zero="No prompt token was found in a cache.",
)
SAVED_BY_TIER = of_prompts(
    id="usd-saved-tiers",
    title="Computing saved by each tier, an hour",
    about="Tokens found there, times what one costs as measured. Loads and tiers not off.",
    lines=(PanelLine("reused_tokens_hour_by_tier", by="tier", factor="saved_usd_token"),),
    unit="usd_hour",
    metric=n.CACHED,
    or_metrics=(n.BY_SOURCE,),
    since="vLLM 0.16",
    kind="stacked",
    styles=TIERS,
    zero="No prompt token was found in a cache.",
)
REUSED_DAY = of_prompts(
    id="tokens-reused-day",
    title="Cached prompt tokens per day",
    about="Of the day before each moment, by where the worker found them.",
    lines=(PanelLine("reused_tokens_day_by_tier", by="source"),),
    unit="tokens",
    metric=n.CACHED,
    since="vLLM 0.32",
    styles={
        "device": TIERS["device"],
        "host": TIERS["l1"],
        "disk": TIERS["l2"],
        "p2p": Style("Another worker", ORANGE, "dashdot"),
        "external_unspecified": TIERS["beyond"],
    },
    zero="No prompt token was found in a cache.",
)
SECONDS_PER_TOKEN = of_prompts(
    id="prefill-seconds",
    title="Seconds a computed prompt token took",
    about="Upper bound: the fixed cost of every step is in it. Calibrate on the Costs page.",
    lines=(
        PanelLine("prefill_seconds_per_token", name="seconds", style=Style("For a token", BLUE)),
    ),
    unit="seconds",
    metric=f"{n.COMPUTED_TOKENS}_count",
    since="vLLM 0.13",
)
AVOIDED = of_prompts(
    id="prefill-avoided",
    title="Seconds of computing avoided",
    about="Each second, at most: tokens not computed again, by the upper bound beside.",
    lines=(
        PanelLine("prefill_seconds_avoided", name="avoided", style=Style("Avoided a second", BLUE)),
    ),
    unit="seconds",
    metric=n.CACHED_ALL,
    since="vLLM 0.16",
)
GPU_IDLE = of_gpus(
    id="gpu-idle-share",
    title="Idle share of GPUs",
    about="What is paid for while the engine of the GPU does nothing.",
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
    "What endpoints cost, and what their caches save.",
    "scale",
    (
        PanelSection("Spent", _SPENT),
        PanelSection("For what was served", _RATES),
        PanelSection("Saved by caches", (SAVED, REUSED_DAY)),
    ),
    (
        PanelSection("Spent", _SPENT),
        PanelSection("For what was served", _RATES),
        PanelSection("Saved by the cache", _ONE_SAVED),
    ),
)
