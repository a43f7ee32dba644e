"""Alert rules for the layers below workers: pods (kube-state-metrics) and GPUs (DCGM).

Without its exporter a rule never fires; `needs` names the exporter. Only objects with our workload
names are selected, and the endpoint is derived from the name (NAME-worker-…, NAME-router-…), which
overwrites a label `endpoint` set by the scrape (a port name). If DCGM is scraped without
`honor_labels`, `pod` is DCGM's own pod and `exported_pod` the worker's.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.alerts.rules.rule import PAGE, Rule, threshold, unless_expected, window

STATE: Final = "kube-state-metrics"
DCGM: Final = "dcgm-exporter"
_OURS = 'deployment=~".+-(worker|router)"'
_PODS = 'pod=~".+-(worker|router)-.+|cache-.+"'
_WORKERS = '=~".+-worker-.+"'
_STUCK = "CrashLoopBackOff|ImagePullBackOff|ErrImagePull"


def _named(expr: str, label: str = "pod", tail: str = "-.+") -> str:
    """Add the endpoint name as a label: the longest match, since a name may end in -worker."""
    whose = f"(.+)-(?:worker|router){tail}|.*"
    return f'label_replace({expr}, "endpoint", "$1", "{label}", "{whose}")'


def _gpu(metric: str, over: str = "", span: str = "") -> str:
    """Select the workers' series by either of the two labels."""
    mine, relayed = (
        f"{over}({metric}{{{label}{_WORKERS}}}{span})" if over else f"{metric}{{{label}{_WORKERS}}}"
        for label in ("pod", "exported_pod")
    )
    return f'({mine} or label_replace({relayed}, "pod", "$1", "exported_pod", "(.+)"))'


_MISSING = (
    f"kube_deployment_spec_replicas{{{_OURS}}} - on (namespace, deployment) "
    "kube_deployment_status_replicas_available"
)
_RESTARTS = f"increase(kube_pod_container_status_restarts_total{{{_PODS}}}[30m])"
_WAITS = f'kube_pod_container_status_waiting_reason{{{_PODS},reason=~"{_STUCK}"}}'
_XID = _gpu("DCGM_FI_DEV_XID_ERRORS")
_NEW_XID = _gpu("DCGM_FI_DEV_XID_ERRORS", "changes", "[10m]")


_pod_rule = partial(Rule, about="pod", needs=STATE)
_gpu_rule = partial(Rule, about="pod", needs=DCGM)

RULES: tuple[Rule, ...] = (
    Rule(
        "EngineTargetsMissing",
        _named(_MISSING, "deployment", ""),
        "10m",
        "fewer pods are available than requested",
        "Check the cluster's events on the endpoint page.",
        condition=f"<measured> > <threshold> {unless_expected('endpoint')}",
        about="deployment",
        needs=STATE,
        parameters=(threshold("Missing pods threshold", 0.0, 0.0, 1000.0),),
    ),
    _pod_rule(
        "PodCrashLoop",
        _named(_RESTARTS),
        "5m",
        "a container is in a crash loop or cannot start",
        "Check its log, including that of the previous container, on the endpoint's Logs tab.",
        condition=_named(f"{_RESTARTS} > <threshold> or {_WAITS} == 1"),
        parameters=(threshold("Restarts threshold (30 min)", 2.0, 0.0, 100.0),),
    ),
    _pod_rule(
        "PodUnschedulable",
        _named(f'kube_pod_status_phase{{{_PODS},phase="Pending"}}'),
        "15m",
        "the pod cannot be scheduled",
        "Check the endpoint's events for the missing resource: usually a GPU, or a taint "
        "without toleration.",
        condition="<measured> == 1",
    ),
    _gpu_rule(
        "GPUXid",
        _named(_XID),
        "0m",
        "a GPU reported an Xid error",
        "Look up the code in NVIDIA's Xid catalogue. For 79 and 95, drain the node.",
        condition=_named(f"{_XID} > 0 and {_NEW_XID} > 0"),
        severity=PAGE,
    ),
    _gpu_rule(
        "GPURowRemapFailure",
        _named(_gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE")),
        "0m",
        "a GPU failed to remap a faulty memory row",
        "Drain the node and reset the GPU; replace the GPU if the error persists.",
        condition="<measured> > 0",
        severity=PAGE,
    ),
    _gpu_rule(
        "GPUHot",
        _named(_gpu("DCGM_FI_DEV_GPU_TEMP")),
        "10m",
        "GPU temperature is above <threshold>; the GPU will throttle",
        "Check the node's cooling and neighbouring load.",
        parameters=(threshold("Temperature threshold", 88.0, 30.0, 120.0, "celsius"),),
    ),
    _gpu_rule(
        "GPUAllocatedIdle",
        _named(_gpu("DCGM_FI_DEV_GPU_UTIL", "max_over_time", "[<window>]")),
        "1h",
        "an allocated GPU has been idle for <window>",
        "Pause the endpoint, or scale it down.",
        condition="<measured> < <threshold>",
        parameters=(
            threshold("Utilization threshold", 5.0, 0.0, 100.0, "percent"),
            window("1h", "5m", "1d"),
        ),
    ),
)
