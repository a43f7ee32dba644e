"""The panels, as declarations: what is asked, how it is drawn, what to say when there is nothing to
draw. Pure; PromQL is in dashboards.queries.
"""

from __future__ import annotations

from dashboards import queries
from dashboards.panels.shape import Line, Panel, Style
from dashboards.panels.styles import CACHE_STATES, GREY, ORANGE, OUTCOMES, QUANTILES, REASONS, TIERS

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
