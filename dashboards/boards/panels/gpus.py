"""Panels of GPUs, pods and containers from the cluster's exporters."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels.declarations import Panel, PanelLine, Style
from dashboards.boards.panels.exporters import by_worker, of_containers, of_gpus, of_pods
from dashboards.boards.panels.styles import BLUE, GREEN, GREY, PHASES_OF_PODS, RED
from dashboards.boards.queries import metric_names as n

UTIL = of_gpus(
    id="gpu-util",
    title="GPU in use",
    about="Share of time in which any kernel ran. It says little of the load: see the next two.",
    lines=by_worker("gpu_util"),
    unit="share",
    metric=n.GPU_UTIL,
    drill="worker",
    zero="The GPUs did nothing.",
)
TENSOR = of_gpus(
    id="gpu-tensor",
    title="GPU tensor cores active",
    about="Reading prompts is bound by these. In the exporter's profiling set of metrics.",
    lines=by_worker("gpu_tensor"),
    unit="share",
    metric=n.GPU_TENSOR,
    drill="worker",
    zero="The GPUs did nothing.",
)
DRAM = of_gpus(
    id="gpu-dram",
    title="GPU memory active",
    about="Writing answers is bound by this. In the exporter's profiling set of metrics.",
    lines=by_worker("gpu_dram"),
    unit="share",
    metric=n.GPU_DRAM,
    drill="worker",
    zero="The GPUs did nothing.",
)
ENGINE = of_gpus(
    id="gpu-engine",
    title="GPU engine active",
    about="Share of time the graphics or compute engine worked: what is missing was idle.",
    lines=by_worker("gpu_engine"),
    unit="share",
    metric=n.GPU_ENGINE,
    drill="worker",
    zero="The GPUs did nothing.",
)
MEMORY = of_gpus(
    id="gpu-memory",
    title="GPU memory used",
    about="vLLM takes its share at the start and keeps it: full is normal.",
    lines=by_worker("gpu_memory"),
    unit="share",
    metric=n.GPU_USED,
    drill="worker",
    zero="Nothing is held in the memory of the GPUs.",
)
TEMPERATURE = of_gpus(
    id="gpu-temp",
    title="GPU temperature",
    about="The hottest of each worker's. Above 88 °C it slows itself down.",
    lines=by_worker("gpu_temp"),
    unit="celsius",
    metric=n.GPU_TEMP,
    drill="worker",
)
POWER = of_gpus(
    id="gpu-power",
    title="GPU power",
    about="Of each worker's GPUs together.",
    lines=by_worker("gpu_power"),
    unit="watts",
    metric=n.GPU_POWER,
    drill="worker",
)
FAULTS = of_gpus(
    id="gpu-faults",
    title="GPUs with a new fault",
    about="Whose XID code changed within the hour. The code itself stays until a restart.",
    lines=(PanelLine("gpu_faults", name="faults"),),
    unit="count",
    metric=n.GPU_XID,
    empty="No GPU reported a new fault.",
    styles={"faults": Style("GPUs", RED)},
    zero="No GPU reported a new fault.",
)
ALLOCATED = of_pods(
    id="gpus-allocated",
    title="GPUs asked for",
    about="By these workers and by all pods, and how many the cluster has.",
    lines=(
        PanelLine("gpus_of_workers", name="workers"),
        PanelLine("gpus_requested", name="all"),
        PanelLine("gpus_allocatable", name="there"),
    ),
    unit="count",
    metric=n.NODE_ALLOCATABLE,
    empty="The cluster has no GPU, or none is asked for.",
    styles={
        "workers": Style("These workers", BLUE, "solid"),
        "all": Style("All pods", GREEN, "dash"),
        "there": Style("There are", GREY, "longdash"),
    },
    zero="The cluster has no GPU, or none is asked for.",
)
ALLOCATED_SHARE = of_pods(
    id="gpus-allocated-share",
    title="Share of GPUs asked for",
    about="Of all the cluster has, by all pods.",
    lines=(PanelLine("gpu_allocated_share", name="share"),),
    unit="share",
    metric=n.NODE_ALLOCATABLE,
    empty="The cluster has no GPU, or none is asked for.",
    styles={"share": Style("Asked for", BLUE)},
    zero="None is asked for.",
)
READY = of_pods(
    id="pods-ready",
    title="Pods ready",
    about="Of these workers, as the cluster sees them.",
    lines=(PanelLine("pods_ready", name="ready"),),
    unit="count",
    metric=n.POD_READY,
    styles={"ready": Style("Ready", GREEN)},
    zero="No pod is ready.",
)
READY_BY_ENDPOINT = of_pods(
    id="pods-ready-endpoints",
    title="Pods ready by endpoint",
    about="Workers, as the cluster sees them.",
    lines=(PanelLine("pods_ready_by_endpoint", by="endpoint_name"),),
    unit="count",
    metric=n.POD_READY,
    drill="endpoint",
    zero="No pod is ready.",
)
PHASES = of_pods(
    id="pods-phases",
    title="Phases of pods",
    about="Of these workers, as the cluster sees them.",
    lines=(PanelLine("pods_by_phase", by="phase"),),
    unit="count",
    metric=n.POD_PHASE,
    kind="stacked",
    styles=PHASES_OF_PODS,
)
RESTARTS = of_pods(
    id="restarts",
    title="Restarts within an hour",
    about="Of the containers of each worker.",
    lines=by_worker("restarts"),
    unit="count",
    metric=n.RESTARTS,
    empty="None restarted, or none of these workers runs on its cluster.",
    drill="worker",
    zero="None restarted.",
)
HOST_MEMORY = of_containers(
    id="pod-memory",
    title="Host memory of each worker",
    about="What the container holds, the L1 pool within it.",
    lines=by_worker("pod_memory"),
    unit="bytes",
    metric=n.POD_MEMORY,
    drill="worker",
)
PROCESSORS = of_containers(
    id="pod-cpu",
    title="Processors of each worker",
    about="Seconds of processor time a second.",
    lines=by_worker("pod_cpu"),
    unit="count",
    metric=n.POD_CPU,
    drill="worker",
    zero="They used next to no processor.",
)


def _of_nodes(panel: Panel, query: str) -> Panel:
    lines = (PanelLine(f"{query}_by_node", by="gpus"),)
    return replace(panel, id=f"{panel.id}-nodes", lines=lines, drill="")


WORKERS_GPUS = (UTIL, TENSOR, DRAM, ENGINE, MEMORY, TEMPERATURE, POWER, FAULTS)
FLEET_GPUS = (
    ALLOCATED,
    ALLOCATED_SHARE,
    *(
        _of_nodes(panel, panel.id.replace("-", "_"))
        for panel in (UTIL, TENSOR, DRAM, ENGINE, MEMORY, TEMPERATURE, POWER)
    ),
    FAULTS,
)
WORKERS_PODS = (READY, PHASES, RESTARTS, HOST_MEMORY, PROCESSORS)
FLEET_PODS = (READY_BY_ENDPOINT, PHASES, RESTARTS)
