"""Panels of workers and their GPUs: load, queues and throughput."""

from __future__ import annotations

from dashboards.boards.panels.cache import CAPACITY, FULL, FULL_BY_ENDPOINT
from dashboards.boards.panels.declarations import Board, PanelLine, PanelSection, Style
from dashboards.boards.panels.exporters import by_endpoint, by_worker, of_workers, percents
from dashboards.boards.panels.gpus import FLEET_GPUS, FLEET_PODS, WORKERS_GPUS, WORKERS_PODS
from dashboards.boards.panels.overview import TTFT_BY_ENDPOINT, WAITING_BY_ENDPOINT
from dashboards.boards.panels.styles import BLUE, GREY, QUANTILES, STATUSES
from dashboards.boards.queries import TOP
from dashboards.boards.queries import metric_names as n

_BUSIEST = f"At most {TOP} workers, the busiest."

UP = of_workers(
    id="workers-up",
    title="Workers up",
    about="Of those known: which answer Prometheus.",
    lines=(PanelLine("workers_up", name="up"), PanelLine("workers_known", name="known")),
    unit="count",
    metric="up",
    cause=None,
    styles={"up": Style("Up", BLUE, "solid"), "known": Style("Known", GREY, "dash")},
)
UP_BY_ENDPOINT = of_workers(
    id="workers-up-endpoints",
    title="Workers up by endpoint",
    about=f"Which answer Prometheus. At most {TOP} endpoints.",
    lines=by_endpoint("workers_up"),
    unit="count",
    metric="up",
    cause=None,
    drill="endpoint",
)
RUNNING = of_workers(
    id="running",
    title="Requests in each worker's batch",
    about=_BUSIEST,
    lines=by_worker("running"),
    unit="count",
    metric=n.RUNNING,
    drill="worker",
    zero="No request was running at these moments.",
    cause=None,
)
WAITING = of_workers(
    id="waiting-reasons",
    title="Requests waiting at each worker",
    about="By reason: capacity, or deferred for a load, an adapter or a blocked one.",
    lines=(PanelLine("waiting_by_reason", by="worker_reason"),),
    unit="count",
    metric=n.WAITING,
    zero="No request was queued at these moments.",
    cause=None,
)
ENGINES_FULL = of_workers(
    id="kv-usage-engines",
    title="Device cache held, by engine",
    about=f"Each data-parallel engine by itself. {_BUSIEST}",
    lines=(PanelLine("kv_usage_by_engine", by="worker_engine"),),
    unit="share",
    metric=n.KV_USAGE,
    or_metrics=(n.KV_USAGE_OLD,),
    cause=None,
    zero="No running request held a block at these moments.",
)
PREEMPTIONS = of_workers(
    id="preemptions",
    title="Preemptions",
    about="A second. Each throws computed KV away: the device's cache is too small for the load.",
    lines=by_worker("preemptions"),
    unit="per_s",
    metric=n.PREEMPTIONS,
    empty="No request was preempted.",
    drill="worker",
)
GENERATED = of_workers(
    id="generated-workers",
    title="Generated tokens a second",
    about=f"By worker. {_BUSIEST}",
    lines=by_worker("generated_tokens"),
    unit="tokens_per_s",
    metric=n.GENERATED,
    drill="worker",
)
TTFT_BY_WORKER = of_workers(
    id="ttft-workers",
    title="TTFT p95 by worker",
    about=f"p95: one in twenty waited longer. {_BUSIEST}",
    lines=by_worker("ttft_p95"),
    unit="seconds",
    metric=f"{n.TTFT}_count",
    drill="worker",
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
ANSWER_LENGTHS = of_workers(
    id="answer-lengths",
    title="Lengths of answers",
    about="Requests by the tokens generated; the brighter, the more.",
    lines=(PanelLine("answer_lengths", by="le"),),
    unit="count",
    metric=f"{n.ANSWER_LENGTH}_count",
    kind="heatmap",
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
    lines=(PanelLine("step_tokens", name="tokens"),),
    unit="tokens",
    metric=f"{n.STEP_TOKENS}_count",
    styles={"tokens": Style("Tokens a step", BLUE)},
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
    drill="worker",
)
FLOPS_PER_TOKEN = of_workers(
    id="flops-token",
    title="Estimated operations for a token",
    about="Floating-point operations for each token computed or generated.",
    lines=(PanelLine("flops_per_token", name="flops"),),
    unit="count",
    metric=n.FLOPS,
    since="vLLM 0.19",
    empty="Zero unless the worker is started with --enable-mfu-metrics.",
    styles={"flops": Style("For a token", BLUE)},
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
