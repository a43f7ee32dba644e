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

_BUSIEST = f"The {TOP} busiest workers."

UP = gauge_of_workers(
    id="workers-up",
    title="Workers up",
    about="Workers with a successful scrape, and all known workers.",
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
    about=f"Workers with a successful scrape. At most {TOP} endpoints.",
    lines=by_endpoint("workers_up"),
)
RUNNING = gauge_of_workers(
    id="running",
    title="Running requests",
    about=f"In the batch of each worker. {_BUSIEST}",
    lines=by_worker("running"),
    unit="count",
    metric=n.RUNNING,
    zero="No requests were running.",
)
WAITING = replace(
    WAITING_BY_ENDPOINT,
    id="waiting-reasons",
    title="Queued requests by worker",
    about="By reason: no capacity, or deferred (KV load, LoRA adapter).",
    lines=(PanelLine("waiting_by_reason", by="worker_reason"),),
)
ENGINES_FULL = replace(
    FULL,
    id="kv-usage-engines",
    title="KV cache utilization by engine",
    about=f"Each data-parallel engine. {_BUSIEST}",
    lines=(PanelLine("kv_usage_by_engine", by="worker_engine"),),
)
PREEMPTIONS = of_workers(
    id="preemptions",
    title="Preemptions/s",
    about="Computed KV is discarded: the device cache is too small for the load.",
    lines=by_worker("preemptions"),
    unit="per_s",
    metric=n.PREEMPTIONS,
    empty="No preemptions.",
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
    about=_BUSIEST,
    lines=by_worker("ttft_p95"),
)
REJECTED = of_workers(
    id="rejected",
    title="Rejected at admission",
    about="Requests/s rejected because the worker's queue limit was reached.",
    lines=(PanelLine("rejected_by_reason", by="reason"),),
    unit="per_s",
    metric=n.REJECTED,
    since="vLLM 0.32, with a limit of its queue set",
    empty="No rejections.",
    kind="bars",
)
PROMPT_LENGTHS = of_workers(
    id="prompt-lengths",
    title="Prompt length distribution",
    about="Requests by prompt tokens; brighter is more.",
    lines=(PanelLine("prompt_lengths", by="le"),),
    unit="count",
    metric=f"{n.PROMPT_LENGTH}_count",
    kind="heatmap",
)
ANSWER_LENGTHS = replace(
    PROMPT_LENGTHS,
    id="answer-lengths",
    title="Output length distribution",
    about="Requests by generated tokens; brighter is more.",
    lines=(PanelLine("answer_lengths", by="le"),),
    metric=f"{n.ANSWER_LENGTH}_count",
)
PROMPT_PERCENTS = of_workers(
    id="prompt-length",
    title="Prompt length",
    about="Tokens, interpolated within vLLM's histogram buckets.",
    lines=percents("prompt_length", *QUANTILES),
    unit="tokens",
    metric=f"{n.PROMPT_LENGTH}_count",
    styles=QUANTILES,
)
BATCH = of_workers(
    id="step-tokens",
    title="Tokens per engine step",
    about="Mean batch size in tokens.",
    lines=(PanelLine("step_tokens", name="tokens", style=Style("Tokens per step", BLUE)),),
    unit="tokens",
    metric=f"{n.STEP_TOKENS}_count",
)
HTTP = of_workers(
    id="http",
    title="Worker HTTP responses/s",
    about="Paths under /v1/, direct requests included.",
    lines=(PanelLine("http_by_status", by="status"),),
    unit="per_s",
    metric=n.HTTP_REQUESTS,
    kind="stacked",
    styles=STATUSES,
)
FLOPS = of_workers(
    id="flops",
    title="Estimated FLOP/s",
    about="Per GPU by worker, estimated by vLLM.",
    lines=by_worker("flops"),
    unit="per_s",
    metric=n.FLOPS,
    since="vLLM 0.19",
    empty="Requires the worker argument --enable-mfu-metrics.",
)
FLOPS_PER_TOKEN = of_workers(
    id="flops-token",
    title="Estimated FLOP per token",
    about="Per computed or generated token, estimated by vLLM.",
    lines=(PanelLine("flops_per_token", name="flops", style=Style("FLOP per token", BLUE)),),
    unit="count",
    metric=n.FLOPS,
    since="vLLM 0.19",
    empty="Requires the worker argument --enable-mfu-metrics.",
    zero="Requires the worker argument --enable-mfu-metrics.",
)


BOARD = Board(
    "workers",
    "Workers and GPU",
    "Load, throughput and GPUs of workers.",
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
            "Throughput",
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
            "work",
        ),
        PanelSection("GPUs", WORKERS_GPUS),
        PanelSection("Cluster", WORKERS_PODS),
    ),
)
