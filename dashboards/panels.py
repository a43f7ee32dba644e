"""What each dashboard shows: declarations, in the order of the page. Pure.

A panel is a few lines of one unit. A line is a query with a name of its own, or one that gives a
series for each value of a label. `fix` texts are shown when there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dashboards import queries
from dashboards.queries import Scope

Query = Callable[[Scope], str]


@dataclass(frozen=True, slots=True)
class Line:
    """`role` fixes colour and pattern (see charts); with `by`, each value of that label is one."""

    query: Query
    name: str = ""
    role: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`job` is whose metrics it needs; `metric` is named when that job shows no such metric."""

    id: str
    title: str
    explains: str
    unit: str  # seconds, per_second, tokens_per_second, share
    kind: str  # lines, stack
    lines: tuple[Line, ...]
    job: str
    metric: str
    zero: str


@dataclass(frozen=True, slots=True)
class Range:
    """A choice of the range picker. Steps give at most 360 points; see prom.MAX_POINTS."""

    key: str
    label: str
    seconds: int
    step: int


RANGES = (
    Range("15m", "15 min", 900, 5),
    Range("1h", "1 h", 3600, 15),
    Range("6h", "6 h", 21_600, 60),
    Range("24h", "24 h", 86_400, 240),
)
DEFAULT_RANGE = RANGES[0]
_NO_REQUESTS = "No request in this range. Send one from the endpoint's page, or run the proof."

REQUESTS = Panel(
    id="requests",
    title="Requests",
    explains="Requests a second as the router answered them.",
    unit="per_second",
    kind="lines",
    lines=(Line(queries.requests_by_class, by="class"),),
    job="router",
    metric="emberline_router_requests_total",
    zero=_NO_REQUESTS,
)
REQUESTS_BY_ENDPOINT = Panel(
    id="requests",
    title="Requests by endpoint",
    explains="Requests a second as each endpoint's router answered them.",
    unit="per_second",
    kind="lines",
    lines=(Line(queries.requests_by_endpoint, by="endpoint"),),
    job="router",
    metric="emberline_router_requests_total",
    zero=_NO_REQUESTS,
)
TTFT = Panel(
    id="ttft",
    title="Time to first token",
    explains="From a request's arrival at the worker to its first token.",
    unit="seconds",
    kind="lines",
    lines=(
        Line(partial(queries.ttft_quantile, quantile=0.5), "p50", "p50"),
        Line(partial(queries.ttft_quantile, quantile=0.9), "p90", "p90"),
        Line(partial(queries.ttft_quantile, quantile=0.99), "p99", "p99"),
    ),
    job="vllm",
    metric="vllm:time_to_first_token_seconds",
    zero="No first token in this range: no request reached a worker.",
)
TTFT_BY_CACHE = Panel(
    id="ttft_by_cache",
    title="Time to first byte by what was cached",
    explains="Median of streamed answers at the router: nothing, a part, or nearly all cached.",
    unit="seconds",
    kind="lines",
    lines=(Line(queries.ttft_by_cache, by="cache"),),
    job="router",
    metric="emberline_router_time_to_first_token_seconds",
    zero='No streamed answer in this range. Send one with "stream": true.',
)
TOKENS = Panel(
    id="tokens",
    title="Prompt tokens by source",
    explains="Where prompt tokens came from: computed, or found in the device's cache, L1 or L2.",
    unit="tokens_per_second",
    kind="stack",
    lines=(
        Line(queries.tokens_computed, "computed", "computed"),
        Line(queries.tokens_device, "device", "device"),
        Line(queries.tokens_l1, "L1", "l1"),
        Line(queries.tokens_l2, "L2", "l2"),
    ),
    job="vllm",
    metric="vllm:prompt_tokens_by_source_total",
    zero="No prompt token in this range: no request reached a worker.",
)
WORKERS = Panel(
    id="workers",
    title="Share per worker",
    explains="Which part of the requests each worker got.",
    unit="share",
    kind="stack",
    lines=(Line(queries.share_by_worker, by="worker"),),
    job="router",
    metric="emberline_router_routing_decisions_total",
    zero=_NO_REQUESTS,
)
REASONS = Panel(
    id="reasons",
    title="Router decisions by reason",
    explains="Why a worker was chosen. The endpoint's routing page explains each decision.",
    unit="per_second",
    kind="lines",
    lines=(Line(queries.decisions_by_reason, by="reason"),),
    job="router",
    metric="emberline_router_routing_decisions_total",
    zero=_NO_REQUESTS,
)

FLEET = (REQUESTS_BY_ENDPOINT, TTFT, TOKENS, TTFT_BY_CACHE, WORKERS, REASONS)
ENDPOINT = (REQUESTS, TTFT, TOKENS, TTFT_BY_CACHE, WORKERS, REASONS)
OVERVIEW = (TOKENS, TTFT)


def find_range(key: str) -> Range:
    """The range with this key, the default one for any other text."""
    return next((choice for choice in RANGES if choice.key == key), DEFAULT_RANGE)
