"""What panels of one exporter have in common, so that each declaration says only what is its own.
Pure."""

from __future__ import annotations

from functools import partial

from dashboards.boards.panels.declarations import Cause, Line, Panel
from dashboards.panels.exporters import CADVISOR, DCGM, KUBE_STATE, LMCACHE

SEND = "Send a request through the router, or choose a longer range."
_LONGER = "Choose a longer range."
PROMPTS = Cause(
    "happened_prompts",
    "No prompt token was processed by a worker in this range.",
    "prompt tokens were processed by workers in this range.",
    SEND,
)
REQUESTS = Cause(
    "happened_requests",
    "No request finished on a worker in this range.",
    "requests finished on workers in this range.",
    SEND,
)
ROUTED = Cause(
    "happened_routed",
    "No request was routed in this range.",
    "requests were routed in this range.",
    SEND,
)
ANSWERED = Cause(
    "happened_answered",
    "No request was answered through a router in this range.",
    "requests were answered through routers in this range.",
    SEND,
)
TIER_LOOKUPS = Cause(
    "happened_tier_lookups",
    "No tier below the device was queried in this range.",
    "chunks were queried below the device in this range.",
    SEND,
)
L2_OPERATIONS = Cause(
    "happened_l2_operations",
    "No L2 cache node served an operation in this range.",
    "operations were served by L2 cache nodes in this range.",
    _LONGER,
)
LMCACHE_LOOKUPS = Cause(
    "happened_lmcache_lookups",
    "LMCache was not queried in this range.",
    "tokens were looked up in LMCache in this range.",
    SEND,
)
NO_GPU = "The exporter runs, but knows no GPU of these workers: they run on processors."

of_workers = partial(Panel, job="vllm", since="vLLM 0.11", cause=REQUESTS)
of_router = partial(Panel, job="router", since="Emberline's router of this version", cause=ROUTED)
of_l2 = partial(
    Panel, job="l2", since="Emberline's cache engine of this version", cause=L2_OPERATIONS
)
of_gpus = partial(Panel, job="", needs=DCGM.name, since="", empty=NO_GPU)
of_pods = partial(
    Panel,
    job="",
    needs=KUBE_STATE.name,
    since="",
    empty="It runs, but knows none of these workers: they do not run on its cluster.",
)
of_containers = partial(
    Panel,
    job="",
    needs=CADVISOR.name,
    since="",
    empty="It runs, but knows none of these workers: they do not run on its cluster.",
)
of_lmcache = partial(
    Panel,
    job="",
    needs=LMCACHE.name,
    since="",
    cause=LMCACHE_LOOKUPS,
)


def by_worker(query: str) -> tuple[Line, ...]:
    return (Line(f"{query}_by_worker", by="pod"),)


def by_endpoint(query: str, label: str = "endpoint_name") -> tuple[Line, ...]:
    return (Line(f"{query}_by_endpoint", by=label),)


def percents(query: str, *names: str) -> tuple[Line, ...]:
    """`percents("ttft", "p50")` asks `ttft_p50`, drawn as `p50`."""
    return tuple(Line(f"{query}_{name}", name=name) for name in names)
