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
        "fewer pods are available than wanted",
        "The endpoint's page has the cluster's own reasons and events.",
        condition=f"<measured> > <threshold> {unless_expected('endpoint')}",
        about="deployment",
        needs=STATE,
        parameters=(threshold("More pods missing than", 0.0, 0.0, 1000.0),),
    ),
    _pod_rule(
        "PodCrashLoop",
        _named(_RESTARTS),
        "5m",
        "a container ends again and again, or cannot be started",
        "Its log, also of its former life, is on the endpoint's tab Logs.",
        condition=_named(f"{_RESTARTS} > <threshold> or {_WAITS} == 1"),
        parameters=(threshold("More restarts in half an hour than", 2.0, 0.0, 100.0),),
    ),
    _pod_rule(
        "PodUnschedulable",
        _named(f'kube_pod_status_phase{{{_PODS},phase="Pending"}}'),
        "15m",
        "no node takes it",
        "The endpoint's events say what the scheduler lacks: mostly a GPU, or a tolerated taint.",
        condition="<measured> == 1",
    ),
    _gpu_rule(
        "GPUXid",
        _named(_XID),
        "0m",
        "a GPU of its reported an error (Xid)",
        "Look the number up in NVIDIA's Xid catalogue; 79 and 95 want the node drained.",
        condition=_named(f"{_XID} > 0 and {_NEW_XID} > 0"),
        severity=PAGE,
    ),
    _gpu_rule(
        "GPURowRemapFailure",
        _named(_gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE")),
        "0m",
        "a GPU of its could not replace a broken row of memory",
        "Drain the node; the GPU wants a reset, and if it stays, a replacement.",
        condition="<measured> > 0",
        severity=PAGE,
    ),
    _gpu_rule(
        "GPUHot",
        _named(_gpu("DCGM_FI_DEV_GPU_TEMP")),
        "10m",
        "a GPU of its is hotter than <threshold> and will slow down",
        "Look at the node's fans and neighbours.",
        parameters=(threshold("Hotter than", 88.0, 30.0, 120.0, "celsius"),),
    ),
    _gpu_rule(
        "GPUAllocatedIdle",
        _named(_gpu("DCGM_FI_DEV_GPU_UTIL", "max_over_time", "[<window>]")),
        "1h",
        "a GPU of its is paid for and was not used for <window>",
        "Pause the endpoint, or let it scale to fewer workers.",
        condition="<measured> < <threshold>",
        parameters=(
            threshold("Never busier than", 5.0, 0.0, 100.0, "percent"),
            window("1h", "5m", "1d"),
        ),
    ),
)
