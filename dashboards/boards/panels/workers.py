"""Panels of workers and their GPUs: load, queues and throughput."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels.cache import CAPACITY, FULL, FULL_BY_ENDPOINT
from dashboards.boards.panels.declarations import Board, PanelLine, PanelSection, Style
from dashboards.boards.panels.exporters import (
    by_endpoint,
    by_worker,
    gauge_of_workers,
    of_workers,
    percents,
)
from dashboards.boards.panels.gpus import FLEET_GPUS, FLEET_PODS, WORKERS_GPUS, WORKERS_PODS
from dashboards.boards.panels.overview import (
    GENERATED_BY_ENDPOINT,
    TTFT_BY_ENDPOINT,
    WAITING_BY_ENDPOINT,
)
from dashboards.boards.panels.styles import BLUE, GREY, QUANTILES, STATUSES
from dashboards.boards.queries import TOP
from dashboards.boards.queries import metric_names as n

_BUSIEST = f"At most {TOP} workers, the busiest."

UP = gauge_of_workers(
    id="workers-up",
    title="Workers up",
    about="Of those known: which answer Prometheus.",
    lines=(
        PanelLine("workers_up", name="up", style=Style("Up", BLUE, "solid")),
        PanelLine("workers_known", name="known", style=Style("Known", GREY, "dash")),
    ),
    unit="count",
    metric="up",
)
UP_BY_ENDPOINT = replace(
    UP,
    id="workers-up-endpoints",
    title="Workers up by endpoint",
    about=f"Which answer Prometheus. At most {TOP} endpoints.",
    lines=by_endpoint("workers_up"),
)
RUNNING = gauge_of_workers(
    id="running",
    title="Requests in each worker's batch",
    about=_BUSIEST,
    lines=by_worker("running"),
    unit="count",
    metric=n.RUNNING,
    zero="No request was running at these moments.",
)
WAITING = replace(
    WAITING_BY_ENDPOINT,
    id="waiting-reasons",
    title="Requests waiting at each worker",
    about="By reason: capacity, or deferred for a load, an adapter or a blocked one.",
    lines=(PanelLine("waiting_by_reason", by="worker_reason"),),
)
ENGINES_FULL = replace(
    FULL,
    id="kv-usage-engines",
    title="Device cache held, by engine",
    about=f"Each data-parallel engine by itself. {_BUSIEST}",
    lines=(PanelLine("kv_usage_by_engine", by="worker_engine"),),
)
PREEMPTIONS = of_workers(
    id="preemptions",
    title="Preemptions",
    about="A second. Each throws computed KV away: the device's cache is too small for the load.",
    lines=by_worker("preemptions"),
    unit="per_s",
    metric=n.PREEMPTIONS,
    empty="No request was preempted.",
)
GENERATED = replace(
    GENERATED_BY_ENDPOINT,
    id="generated-workers",
    about=f"By worker. {_BUSIEST}",
    lines=by_worker("generated_tokens"),
)
TTFT_BY_WORKER = replace(
    TTFT_BY_ENDPOINT,
    id="ttft-workers",
    title="TTFT p95 by worker",
    about=f"p95: one in twenty waited longer. {_BUSIEST}",
    lines=by_worker("ttft_p95"),
)
REJECTED = of_workers(
    id="rejected",
    title="Rejected requests",
    about="Requests a second which found the worker's own queue full.",
    lines=(PanelLine("rejected_by_reason", by="reason"),),
    unit="per_s",
    metric=n.REJECTED,
    since="vLLM 0.32, with a limit of its queue set",
    empty="None was rejected.",
    kind="bars",
)
PROMPT_LENGTHS = of_workers(
    id="prompt-lengths",
    title="Lengths of prompts",
    about="Requests by the tokens of their prompt; the brighter, the more.",
    lines=(PanelLine("prompt_lengths", by="le"),),
    unit="count",
    metric=f"{n.PROMPT_LENGTH}_count",
    kind="heatmap",
)
ANSWER_LENGTHS = replace(
    PROMPT_LENGTHS,
    id="answer-lengths",
    title="Lengths of answers",
    about="Requests by the tokens generated; the brighter, the more.",
    lines=(PanelLine("answer_lengths", by="le"),),
    metric=f"{n.ANSWER_LENGTH}_count",
)
PROMPT_PERCENTS = of_workers(
    id="prompt-length",
    title="Length of a prompt",
    about="In tokens, by vLLM's coarse steps.",
    lines=percents("prompt_length", *QUANTILES),
    unit="tokens",
    metric=f"{n.PROMPT_LENGTH}_count",
    styles=QUANTILES,
)
BATCH = of_workers(
    id="step-tokens",
    title="Tokens of one step",
    about="Mean of what an engine works on at once.",
    lines=(PanelLine("step_tokens", name="tokens", style=Style("Tokens a step", BLUE)),),
    unit="tokens",
    metric=f"{n.STEP_TOKENS}_count",
)
HTTP = of_workers(
    id="http",
    title="Answers of the workers' own HTTP",
    about="A second under /v1/, also what came by no router.",
    lines=(PanelLine("http_by_status", by="status"),),
    unit="per_s",
    metric=n.HTTP_REQUESTS,
    kind="stacked",
    styles=STATUSES,
)
FLOPS = of_workers(
    id="flops",
    title="Estimated operations a second",
    about="Floating-point operations of each worker's GPU, as vLLM estimates them.",
    lines=by_worker("flops"),
    unit="per_s",
    metric=n.FLOPS,
    since="vLLM 0.19",
    empty="Zero unless the worker is started with --enable-mfu-metrics.",
)
FLOPS_PER_TOKEN = of_workers(
    id="flops-token",
    title="Estimated operations for a token",
    about="Floating-point operations for each token computed or generated.",
    lines=(PanelLine("flops_per_token", name="flops", style=Style("For a token", BLUE)),),
    unit="count",
    metric=n.FLOPS,
    since="vLLM 0.19",
    empty="Zero unless the worker is started with --enable-mfu-metrics.",
    zero="It is counted only where the worker is started with --enable-mfu-metrics.",
)


BOARD = Board(
    "workers",
    "Workers and GPU",
    "What workers and their GPUs are busy with.",
    "cpu",
    (
        PanelSection(
            "Load",
            (
                UP_BY_ENDPOINT,
                WAITING_BY_ENDPOINT,
                FULL_BY_ENDPOINT,
                TTFT_BY_ENDPOINT,
                BATCH,
                PROMPT_LENGTHS,
                ANSWER_LENGTHS,
                HTTP,
            ),
        ),
        PanelSection("GPUs", FLEET_GPUS),
        PanelSection("Cluster", FLEET_PODS),
    ),
    (
        PanelSection("Load", (UP, RUNNING, WAITING, FULL, ENGINES_FULL, CAPACITY, PREEMPTIONS)),
        PanelSection(
            "Work",
            (
                GENERATED,
                TTFT_BY_WORKER,
                BATCH,
                PROMPT_LENGTHS,
                PROMPT_PERCENTS,
                ANSWER_LENGTHS,
                REJECTED,
                HTTP,
                FLOPS,
                FLOPS_PER_TOKEN,
            ),
        ),
        PanelSection("GPUs", WORKERS_GPUS),
        PanelSection("Cluster", WORKERS_PODS),
    ),
)
