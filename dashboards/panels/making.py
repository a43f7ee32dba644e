"""What panels of one exporter have in common, so that each declaration says only what is its own.
Pure."""

from __future__ import annotations

from functools import partial

from dashboards.panels.exporters import CADVISOR, DCGM, KUBE_STATE, LMCACHE
from dashboards.panels.shape import Line, Panel

SEND = "Send a request through the router, or choose a longer range."
NO_PROMPT = f"No prompt reached a worker in this range. {SEND}"
NO_REQUEST = f"No request reached a worker in this range. {SEND}"
NOTHING_ROUTED = f"Nothing was routed in this range. {SEND}"
NO_GPU = "The exporter runs, but knows no GPU of these workers: they run on processors."
_EMPTY_TIER = "The tier is empty and was not asked for anything in this range."

of_workers = partial(Panel, job="vllm", since="vLLM 0.11", empty=NO_REQUEST)
of_router = partial(
    Panel, job="router", since="Emberline's router of this version", empty=NOTHING_ROUTED
)
of_l2 = partial(
    Panel, job="l2", since="Emberline's cache engine of this version", empty=_EMPTY_TIER
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
    empty=f"LMCache was not asked for anything in this range. {SEND}",
)


def by_worker(query: str) -> tuple[Line, ...]:
    return (Line(f"{query}_by_worker", by="pod"),)


def by_endpoint(query: str, label: str = "endpoint_name") -> tuple[Line, ...]:
    return (Line(f"{query}_by_endpoint", by=label),)


def percents(query: str, *names: str) -> tuple[Line, ...]:
    """`percents("ttft", "p50")` asks `ttft_p50`, drawn as `p50`."""
    return tuple(Line(f"{query}_{name}", name=name) for name in names)
