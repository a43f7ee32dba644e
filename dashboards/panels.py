"""The panels of both dashboards, as declarations: what is asked, how it is drawn, what to say when
there is nothing to draw.

Promises that a tier has one colour and one dash everywhere. Pure; PromQL is in queries.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dashboards import queries
from routing import choices

# Okabe and Ito's colours, told apart by nearly everybody; the dash and the hatching say it again.
SKY, PURPLE, BLUE = "#56B4E9", "#CC79A7", "#0072B2"
GREEN, ORANGE, RED, GREY = "#009E73", "#E69F00", "#D55E00", "#999999"
BROWN = "#8C6D31"  # one more, for a ninth reason
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

Kind = Literal["lines", "stacked"]
Unit = Literal["per_s", "seconds", "share"]


@dataclass(frozen=True, slots=True)
class Style:
    """`hatch` is Plotly's fill pattern, for stacked areas."""

    label: str
    colour: str
    dash: str = "solid"
    hatch: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """The series of one query: named by the value of label `by`, or all of them `name`."""

    query: str
    by: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`job` exports `metric`; where that is missing, `since` says which version has it.
    `styles` go by series name; names without one get one in turn. A share that is not `of_whole`
    is drawn as large as it is, not against 100 %."""

    id: str
    title: str
    about: str
    lines: tuple[Line, ...]
    unit: Unit
    job: Literal["vllm", "router", "l2"]
    metric: str
    since: str
    empty: str
    kind: Kind = "lines"
    styles: Mapping[str, Style] = field(default_factory=dict)
    of_whole: bool = True

    @property
    def hides_zeros(self) -> bool:
        """Every reason and tier exists from the start; those never met only fill the legend."""
        return bool(self.styles)


@dataclass(frozen=True, slots=True)
class Range:
    """`step_s` keeps a line under 600 points; `poll_s` is how often the page asks again."""

    key: str
    label: str
    length_s: int
    step_s: int
    poll_s: int


RANGES: Mapping[str, Range] = {
    choice.key: choice
    for choice in (
        Range("15m", "15 minutes", 900, 5, 5),
        Range("1h", "1 hour", 3600, 10, 5),
        Range("6h", "6 hours", 6 * 3600, 40, 10),
        Range("24h", "24 hours", 24 * 3600, 180, 10),
    )
}
DEFAULT_RANGE = RANGES["15m"]

TIERS = {
    "device": Style("Device", BLUE, "solid", ""),
    "l1": Style("L1 host memory", GREEN, "dash", "/"),
    "l2": Style("L2 shared", ORANGE, "dot", "x"),
    "computed": Style("Computed", GREY, "longdash", "."),
}
_REASON_STYLES = {
    "prefix_hit": (GREEN, "solid", ""),
    "kv_hit": (BLUE, "solid", "/"),
    "session_sticky": (SKY, "solid", "x"),
    "round_robin": (PURPLE, "solid", "-"),
    "pinned": (BROWN, "dot", "|"),
    "fallback_no_match": (GREY, "dash", "."),
    "fallback_least_loaded": (ORANGE, "dash", "\\"),
    "fallback_unhealthy": (RED, "dash", "+"),
    "retry": (RED, "dot", "/"),
}
REASONS = {
    reason: Style(choices.label(reason), *clothes) for reason, clothes in _REASON_STYLES.items()
}
OUTCOMES = {
    "2": Style("Answered (2xx)", SKY, "solid", ""),
    "3": Style("Redirected (3xx)", PURPLE, "dot", "-"),
    "4": Style("Refused (4xx)", ORANGE, "dash", "/"),
    "5": Style("Failed (5xx)", RED, "dot", "x"),
}
CACHE_STATES = {
    "none": Style("Nothing cached", GREY, "longdash"),
    "partial": Style("Partly cached", SKY, "dash"),
    "full": Style("Wholly cached", GREEN, "solid"),
}
QUANTILES = {
    "p50": Style("p50", SKY, "solid"),
    "p90": Style("p90", PURPLE, "dash"),
    "p99": Style("p99", BLUE, "dot"),
}

_SEND = "Send a request through the router, or choose a longer range."
_ROUTER = "Emberline's router of this version"

TTFT = Panel(
    id="ttft",
    title="Time to first token",
    about="From arrival at the worker, waiting included. p90: nine in ten were quicker.",
    lines=tuple(Line(f"ttft_{name}", name=name) for name in QUANTILES),
    unit="seconds",
    job="vllm",
    metric=f"{queries.TTFT}_count",
    since="vLLM 0.11",
    empty=f"No request reached a worker in this range. {_SEND}",
    styles=QUANTILES,
)
SOURCES = Panel(
    id="sources",
    title="Where prompt tokens came from",
    about="Tokens found in a tier were not computed again. The four add up to 100 %.",
    lines=(Line("prompt_share_by_source", by="tier"),),
    unit="share",
    job="vllm",
    metric=queries.CACHED,
    since="vLLM 0.32",
    empty=f"No prompt reached a worker in this range. {_SEND}",
    kind="stacked",
    styles=TIERS,
)
SHARE = Panel(
    id="share",
    title="Share of each worker",
    about=f"Of all requests routed. At most {queries.TOP} workers, the busiest.",
    lines=(Line("share_by_worker", by="worker"),),
    unit="share",
    job="router",
    metric=queries.DECISIONS,
    since=_ROUTER,
    empty=f"Nothing was routed in this range. {_SEND}",
    of_whole=False,
)
REASONS_PANEL = Panel(
    id="decisions",
    title="Why the router chose",
    about="Decisions a second. Much grey, orange or red: caches are hardly used.",
    lines=(Line("decisions_by_reason", by="reason"),),
    unit="per_s",
    job="router",
    metric=queries.DECISIONS,
    since=_ROUTER,
    empty=f"Nothing was routed in this range. {_SEND}",
    kind="stacked",
    styles=REASONS,
)
BY_CACHE = Panel(
    id="ttft-cache",
    title="Time to first token by what was cached",
    about="Half of the streamed answers began within this time, as the router saw it.",
    lines=(Line("ttft_by_cache", by="cache"),),
    unit="seconds",
    job="router",
    metric=f"{queries.ROUTER_TTFT}_count",
    since=_ROUTER,
    empty='No answer was streamed in this range. Send a request with "stream": true.',
    styles=CACHE_STATES,
)
OUTCOME = Panel(
    id="requests",
    title="Requests a second",
    about="What the router answered its callers.",
    lines=(Line("requests_by_outcome", by="outcome"),),
    unit="per_s",
    job="router",
    metric=queries.REQUESTS,
    since=_ROUTER,
    empty=f"No request reached the router in this range. {_SEND}",
    styles=OUTCOMES,
)
BY_ENDPOINT = Panel(
    id="requests",
    title="Requests a second",
    about=f"By endpoint, as its router answered. At most {queries.TOP} endpoints, the busiest.",
    lines=(Line("requests_by_endpoint", by="endpoint"),),
    unit="per_s",
    job="router",
    metric=queries.REQUESTS,
    since=_ROUTER,
    empty=f"No request reached a router in this range. {_SEND}",
)
REUSE = Panel(
    id="reuse",
    title="Prompt tokens not computed again",
    about=f"By endpoint, all tiers together. At most {queries.TOP} endpoints, the busiest.",
    lines=(Line("reuse_by_endpoint", by="endpoint_name"),),
    unit="share",
    job="vllm",
    metric=queries.BY_SOURCE,
    since="vLLM 0.16",
    empty=f"No prompt reached a worker in this range. {_SEND}",
)
L2 = Panel(
    id="l2",
    title="L2 cache tier",
    about="Blocks found of those asked for, and how full the tier is.",
    lines=(Line("l2_hit_share", name="found"), Line("l2_fill", name="fill")),
    unit="share",
    job="l2",
    metric=queries.L2_CAPACITY,
    since="Emberline's cache engine of this version",
    empty="The tier is empty and was not asked for anything in this range.",
    styles={
        "found": Style("Found of asked for", ORANGE, "solid"),
        "fill": Style("Filled", GREY, "dash"),
    },
)

FLEET: tuple[Panel, ...] = (BY_ENDPOINT, TTFT, SOURCES, REUSE, SHARE, REASONS_PANEL, L2)
ENDPOINT: tuple[Panel, ...] = (OUTCOME, TTFT, SOURCES, BY_CACHE, SHARE, REASONS_PANEL)
