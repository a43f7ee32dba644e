"""Panels of GPUs, pods and containers from the cluster's exporters."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels.declarations import Panel, PanelLine, Style, Unit
from dashboards.boards.panels.exporters import by_worker, of_containers, of_gpus, of_pods
from dashboards.boards.panels.styles import BLUE, GREEN, GREY, PHASES_OF_PODS, RED
from dashboards.boards.queries import metric_names as n

_UNUSED = "The GPUs did nothing."


def _gauge(panel_id: str, title: str, about: str, metric: str, unit: Unit, zero: str = "") -> Panel:
    """Panel of each worker's GPUs; its id with underscores is the name of its query."""
    lines = by_worker(panel_id.replace("-", "_"))
    return of_gpus(
        id=panel_id, title=title, about=about, lines=lines, unit=unit, metric=metric, zero=zero
    )


UTIL = _gauge(
    "gpu-util",
    "GPU in use",
    "Share of time in which any kernel ran. It says little of the load: see the next two.",
    n.GPU_UTIL,
    "share",
    _UNUSED,
)
TENSOR = _gauge(
    "gpu-tensor",
    "GPU tensor cores active",
    "Reading prompts is bound by these. In the exporter's profiling set of metrics.",
    n.GPU_TENSOR,
    "share",
    _UNUSED,
)
DRAM = _gauge(
    "gpu-dram",
    "GPU memory active",
    "Writing answers is bound by this. In the exporter's profiling set of metrics.",
    n.GPU_DRAM,
    "share",
    _UNUSED,
)
ENGINE = _gauge(
    "gpu-engine",
    "GPU engine active",
    "Share of time the graphics or compute engine worked: what is missing was idle.",
    n.GPU_ENGINE,
    "share",
    _UNUSED,
)
MEMORY = _gauge(
    "gpu-memory",
    "GPU memory used",
    "vLLM takes its share at the start and keeps it: full is normal.",
    n.GPU_USED,
    "share",
    "Nothing is held in the memory of the GPUs.",
)
TEMPERATURE = _gauge(
    "gpu-temp",
    "GPU temperature",
    "The hottest of each worker's. Above 88 °C it slows itself down.",
    n.GPU_TEMP,
    "celsius",
)
POWER = _gauge("gpu-power", "GPU power", "Of each worker's GPUs together.", n.GPU_POWER, "watts")
FAULTS = of_gpus(
    id="gpu-faults",
    title="GPUs with a new fault",
    about="Whose XID code changed within the hour. The code itself stays until a restart.",
    lines=(PanelLine("gpu_faults", name="faults", style=Style("GPUs", RED)),),
    unit="count",
    metric=n.GPU_XID,
    empty="No GPU reported a new fault.",
    zero="No GPU reported a new fault.",
)
ALLOCATED = of_pods(
    id="gpus-allocated",
    title="GPUs asked for",
    about="By these workers and by all pods, and how many the cluster has.",
    lines=(
        PanelLine("gpus_of_workers", name="workers", style=Style("These workers", BLUE, "solid")),
        PanelLine("gpus_requested", name="all", style=Style("All pods", GREEN, "dash")),
        PanelLine("gpus_allocatable", name="there", style=Style("There are", GREY, "longdash")),
    ),
    unit="count",
    metric=n.NODE_ALLOCATABLE,
    empty="The cluster has no GPU, or none is asked for.",
    zero="The cluster has no GPU, or none is asked for.",
)
ALLOCATED_SHARE = of_pods(
    id="gpus-allocated-share",
    title="Share of GPUs asked for",
    about="Of all the cluster has, by all pods.",
    lines=(PanelLine("gpu_allocated_share", name="share", style=Style("Asked for", BLUE)),),
    unit="share",
    metric=n.NODE_ALLOCATABLE,
    empty="The cluster has no GPU, or none is asked for.",
    zero="None is asked for.",
)
READY = of_pods(
    id="pods-ready",
    title="Pods ready",
    about="Of these workers, as the cluster sees them.",
    lines=(PanelLine("pods_ready", name="ready", style=Style("Ready", GREEN)),),
    unit="count",
    metric=n.POD_READY,
    zero="No pod is ready.",
)
READY_BY_ENDPOINT = replace(
    READY,
    id="pods-ready-endpoints",
    title="Pods ready by endpoint",
    about="Workers, as the cluster sees them.",
    lines=(PanelLine("pods_ready_by_endpoint", by="endpoint_name"),),
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
    zero="None restarted.",
)
HOST_MEMORY = of_containers(
    id="pod-memory",
    title="Host memory of each worker",
    about="What the container holds, the L1 pool within it.",
    lines=by_worker("pod_memory"),
    unit="bytes",
    metric=n.POD_MEMORY,
)
PROCESSORS = of_containers(
    id="pod-cpu",
    title="Processors of each worker",
    about="Seconds of processor time a second.",
    lines=by_worker("pod_cpu"),
    unit="count",
    metric=n.POD_CPU,
    zero="They used next to no processor.",
)


def _of_nodes(panel: Panel) -> Panel:
    lines = (PanelLine(f"{panel.id.replace('-', '_')}_by_node", by="gpus"),)
    return replace(panel, id=f"{panel.id}-nodes", lines=lines)


_GAUGES = (UTIL, TENSOR, DRAM, ENGINE, MEMORY, TEMPERATURE, POWER)
WORKERS_GPUS = (*_GAUGES, FAULTS)
FLEET_GPUS = (ALLOCATED, ALLOCATED_SHARE, *(_of_nodes(panel) for panel in _GAUGES), FAULTS)
WORKERS_PODS = (READY, PHASES, RESTARTS, HOST_MEMORY, PROCESSORS)
FLEET_PODS = (READY_BY_ENDPOINT, PHASES, RESTARTS)
