"""Queries of cluster exporters: GPU, container and pod metrics of workers.

Exporters label pods, not endpoints. The mapping comes from the workers' own targets, never from
name prefixes: pods of `demo-two` begin like those of `demo`.
"""

from __future__ import annotations

import re

from dashboards.boards.queries import growth
from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    QUERIES,
    Query,
    Scope,
    Times,
    escape_label,
    join_labels,
    register_query,
    sum_by,
)

# Recorded for the whole fleet: their series of each pod are many, or their windows long.
FLEET_GAUGES = (
    *("gpu_faults", "gpus_of_workers", "restarts_by_worker"),
    *("pods_by_phase", "pods_ready", "pods_ready_by_endpoint"),
)
_GPU = '{resource="nvidia_com_gpu"}'


def _pods(vector: str) -> str:
    """Use the pod labels of the exporter, whether or not the scrape kept its own (honor_labels)."""
    for label in ("pod", "namespace"):
        vector = f'label_replace({vector}, "{label}", "$1", "exported_{label}", "(.+)")'
    return vector


def _select_pods(vector: str, scope: Scope) -> str:
    """Limit the selector to the scope's pods by either label, as far as they are known."""
    match = _SELECTOR.fullmatch(vector)
    if not scope.pods or match is None:
        return vector
    names = escape_label("|".join(map(re.escape, scope.pods)))
    parts = (
        f"{match[1]}{{{','.join(filter(None, [match[2], matcher]))}}}{match[3]}"
        for matcher in (f'pod=~"{names}"', f'exported_pod=~"{names}"')
    )
    return f"({' or '.join(parts)})"


_SELECTOR = re.compile(r"((?:\w+\()?[a-zA-Z_:][\w:]*)(?:\{([^{}]*)\})?(.*)")


def of_workers(vector: str, scope: Scope) -> str:
    """Limit to the scope's workers and add their endpoint's name."""
    workers = f"up{scope.engines(job='vllm')} >= bool 0"
    mine = f"max by (namespace, pod, endpoint_name) ({workers})"
    pods = _pods(_select_pods(vector, scope))
    return f"{pods} * on (namespace, pod) group_left (endpoint_name) {mine}"


def _mine(vector: str, scope: Scope) -> str:
    """Like `of_workers`; for the whole fleet, pods without workers are included."""
    return vector if scope.is_fleet else of_workers(vector, scope)


def _by_pod(metric: str, how: str, factor: str = "") -> Query:
    def query(scope: Scope, _times: Times) -> str:
        return f"{how} by (pod) ({of_workers(metric, scope)}){factor}"

    return query


def _by_node(metric: str, how: str, factor: str = "") -> Query:
    def query(scope: Scope, _times: Times) -> str:
        gpus = f"{how} by (Hostname, modelName) ({_mine(metric, scope)}){factor}"
        return join_labels(gpus, "gpus", "Hostname", "modelName")

    return query


def _memory_share(used: str, free: str) -> str:
    return f"{used} / ({used} + {free})"


def _sum(vector: str) -> Query:
    """Sum over all pods visible to the viewer."""
    return lambda scope, _times: f"sum({_mine(vector, scope)})"


def _of_workers(vector: str, by: str = "") -> Query:
    return lambda scope, _times: sum_by(by, of_workers(vector, scope))


_GPU_GAUGES = {
    "gpu_util": (n.GPU_UTIL, "avg", " / 100"),
    "gpu_engine": (n.GPU_ENGINE, "avg", ""),
    "gpu_tensor": (n.GPU_TENSOR, "avg", ""),
    "gpu_dram": (n.GPU_DRAM, "avg", ""),
    "gpu_temp": (n.GPU_TEMP, "max", ""),
    "gpu_power": (n.GPU_POWER, "sum", ""),
}
_REQUESTED, _ALLOCATABLE = f"{n.POD_REQUESTS}{_GPU}", f"sum({n.NODE_ALLOCATABLE}{_GPU})"
_READY = f'{n.POD_READY}{{condition="true"}}'
for _name, _what in _GPU_GAUGES.items():
    register_query(f"{_name}_by_worker")(_by_pod(*_what))
    register_query(f"{_name}_by_node")(_by_node(*_what))
QUERIES.update(
    {
        "pod_memory_by_worker": _of_workers(f'{n.POD_MEMORY}{{container!=""}}', "pod"),
        "restarts_by_worker": _of_workers(f"increase({n.RESTARTS}[1h])", "pod"),
        "gpus_of_workers": _of_workers(_REQUESTED),
        "gpus_requested": _sum(_REQUESTED),
        "gpus_allocatable": lambda _scope, _times: _ALLOCATABLE,
        "pods_ready": _of_workers(_READY),
        "pods_ready_by_endpoint": _of_workers(_READY, "endpoint_name"),
        "pods_by_phase": _of_workers(n.POD_PHASE, "phase"),
        "gpu_idle_share": lambda scope, _times: f"1 - avg({_mine(n.GPU_ENGINE, scope)})",
    }
)


@register_query("gpu_memory_by_worker")
def gpu_memory_by_worker(scope: Scope, _times: Times) -> str:
    used, free = (f"sum by (pod) ({of_workers(m, scope)})" for m in (n.GPU_USED, n.GPU_FREE))
    return _memory_share(used, free)


@register_query("gpu_memory_by_node")
def gpu_memory_by_node(scope: Scope, _times: Times) -> str:
    by = "Hostname, modelName"
    used, free = (f"sum by ({by}) ({_mine(m, scope)})" for m in (n.GPU_USED, n.GPU_FREE))
    return join_labels(_memory_share(used, free), "gpus", "Hostname", "modelName")


@register_query("gpu_faults")
def gpu_faults(scope: Scope, _times: Times) -> str:
    """GPUs whose fault code changed within an hour; the code itself persists."""
    return f"sum({_mine(f'changes({n.GPU_XID}[1h])', scope)} > bool 0)"


@register_query("gpu_allocated_share")
def gpu_allocated_share(scope: Scope, times: Times) -> str:
    return f"{QUERIES['gpus_requested'](scope, times)} / ({_ALLOCATABLE} > 0)"


@register_query("pod_cpu_by_worker")
def pod_cpu_by_worker(scope: Scope, times: Times) -> str:
    spent = f'rate({n.POD_CPU}{{container!=""}}[{times.rate_s}s])'
    return f"sum by (pod) ({of_workers(spent, scope)})"


def _recorded_of_fleet(name: str) -> Query:
    """Read a gauge of the whole fleet from its recording rule, in steps of no less."""
    query, copies = QUERIES[name], growth.COPIES

    def read(scope: Scope, times: Times) -> str:
        if scope.is_fleet and copies.every_s in times.fleet and times.step_s >= copies.every_s:
            return f"last_over_time({copies.fleet}{name}[{2 * copies.every_s}s])"
        return query(scope, times)

    return read


QUERIES.update({name: _recorded_of_fleet(name) for name in FLEET_GAUGES})
