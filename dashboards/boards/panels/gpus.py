"""Panels of GPUs, pods and containers from the cluster's exporters."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels.declarations import Panel, PanelLine, Style, Unit
from dashboards.boards.panels.exporters import by_worker, of_containers, of_gpus, of_pods
from dashboards.boards.panels.styles import BLUE, GREEN, GREY, PHASES_OF_PODS, RED
from dashboards.boards.queries import metric_names as n

_UNUSED = "The GPUs were idle."


def _gauge(panel_id: str, title: str, about: str, metric: str, unit: Unit, zero: str = "") -> Panel:
    """Panel of each worker's GPUs; its id with underscores is the name of its query."""
    lines = by_worker(panel_id.replace("-", "_"))
    return of_gpus(
        id=panel_id, title=title, about=about, lines=lines, unit=unit, metric=metric, zero=zero
    )


UTIL = _gauge(
    "gpu-util",
    "GPU utilization",
    "Share of time with a running kernel; not a measure of load, see the next two panels.",
    n.GPU_UTIL,
    "share",
    _UNUSED,
)
TENSOR = _gauge(
    "gpu-tensor",
    "GPU tensor cores active",
    "Prefill is bound by tensor cores. DCGM profiling metric.",
    n.GPU_TENSOR,
    "share",
    _UNUSED,
)
DRAM = _gauge(
    "gpu-dram",
    "GPU memory bandwidth active",
    "Decode is bound by memory bandwidth. DCGM profiling metric.",
    n.GPU_DRAM,
    "share",
    _UNUSED,
)
ENGINE = _gauge(
    "gpu-engine",
    "GPU engine active",
    "Share of time with an active graphics or compute engine.",
    n.GPU_ENGINE,
    "share",
    _UNUSED,
)
MEMORY = _gauge(
    "gpu-memory",
    "GPU memory used",
    "vLLM allocates its share at startup: full is normal.",
    n.GPU_USED,
    "share",
    "GPU memory is empty.",
)
TEMPERATURE = _gauge(
    "gpu-temp",
    "GPU temperature",
    "Hottest GPU of each worker. Throttles above 88 °C.",
    n.GPU_TEMP,
    "celsius",
)
POWER = _gauge("gpu-power", "GPU power", "Sum over each worker's GPUs.", n.GPU_POWER, "watts")
FAULTS = of_gpus(
    id="gpu-faults",
    title="GPU XID errors",
    about="GPUs whose XID code changed within 1 h. The code persists until a restart.",
    lines=(PanelLine("gpu_faults", name="faults", style=Style("GPUs", RED)),),
    unit="count",
    metric=n.GPU_XID,
    empty="No GPU reported a new XID error.",
    zero="No GPU reported a new XID error.",
)
ALLOCATED = of_pods(
    id="gpus-allocated",
    title="GPUs requested",
    about="By these workers, by all pods, and allocatable in the cluster.",
    lines=(
        PanelLine("gpus_of_workers", name="workers", style=Style("These workers", BLUE, "solid")),
        PanelLine("gpus_requested", name="all", style=Style("All pods", GREEN, "dash")),
        PanelLine("gpus_allocatable", name="there", style=Style("Allocatable", GREY, "longdash")),
    ),
    unit="count",
    metric=n.NODE_ALLOCATABLE,
    empty="The cluster has no GPUs, or none are requested.",
    zero="The cluster has no GPUs, or none are requested.",
)
ALLOCATED_SHARE = of_pods(
    id="gpus-allocated-share",
    title="GPU allocation",
    about="Requested share of the cluster's allocatable GPUs.",
    lines=(PanelLine("gpu_allocated_share", name="share", style=Style("Requested", BLUE)),),
    unit="share",
    metric=n.NODE_ALLOCATABLE,
    empty="The cluster has no GPUs, or none are requested.",
    zero="No GPUs are requested.",
)
READY = of_pods(
    id="pods-ready",
    title="Pods ready",
    about="Worker pods, from kube-state-metrics.",
    lines=(PanelLine("pods_ready", name="ready", style=Style("Ready", GREEN)),),
    unit="count",
    metric=n.POD_READY,
    zero="No pods are ready.",
)
READY_BY_ENDPOINT = replace(
    READY,
    id="pods-ready-endpoints",
    title="Pods ready by endpoint",
    about="Worker pods, from kube-state-metrics.",
    lines=(PanelLine("pods_ready_by_endpoint", by="endpoint_name"),),
)
PHASES = of_pods(
    id="pods-phases",
    title="Pod phases",
    about="Worker pods, from kube-state-metrics.",
    lines=(PanelLine("pods_by_phase", by="phase"),),
    unit="count",
    metric=n.POD_PHASE,
    kind="stacked",
    styles=PHASES_OF_PODS,
)
RESTARTS = of_pods(
    id="restarts",
    title="Container restarts (1 h)",
    about="By worker.",
    lines=by_worker("restarts"),
    unit="count",
    metric=n.RESTARTS,
    empty="No restarts, or none of these workers runs on its cluster.",
    zero="No restarts.",
)
HOST_MEMORY = of_containers(
    id="pod-memory",
    title="Container memory",
    about="By worker, L1 pool included.",
    lines=by_worker("pod_memory"),
    unit="bytes",
    metric=n.POD_MEMORY,
)
PROCESSORS = of_containers(
    id="pod-cpu",
    title="Container CPU (cores)",
    about="By worker.",
    lines=by_worker("pod_cpu"),
    unit="count",
    metric=n.POD_CPU,
    zero="CPU usage was near zero.",
)


def _of_nodes(panel: Panel) -> Panel:
    lines = (PanelLine(f"{panel.id.replace('-', '_')}_by_node", by="gpus"),)
    return replace(panel, id=f"{panel.id}-nodes", lines=lines)


_GAUGES = (UTIL, TENSOR, DRAM, ENGINE, MEMORY, TEMPERATURE, POWER)
WORKERS_GPUS = (*_GAUGES, FAULTS)
FLEET_GPUS = (ALLOCATED, ALLOCATED_SHARE, *(_of_nodes(panel) for panel in _GAUGES), FAULTS)
WORKERS_PODS = (READY, PHASES, RESTARTS, HOST_MEMORY, PROCESSORS)
FLEET_PODS = (READY_BY_ENDPOINT, PHASES, RESTARTS)
