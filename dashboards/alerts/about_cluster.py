"""Alert rules about what is below workers: pods by kube-state-metrics, GPUs by DCGM. Pure.

Where the exporter is not there they never fire, and their rule says which one it is (`needs`).
Exporters tell of everything in a cluster; only what bears the names of our workloads is looked at.
"""

from __future__ import annotations

from typing import Final

from dashboards.alerts.rule import PAGE, TICKET, Rule

STATE: Final = "kube-state-metrics"
DCGM: Final = "dcgm-exporter"
_OURS = 'deployment=~".+-(worker|router)"'
_PODS = 'pod=~".+-(worker|router)-.+|cache-.+"'
_WORKERS = 'pod=~".+-worker-.+"'
_STUCK = "CrashLoopBackOff|ImagePullBackOff|ErrImagePull"

RULES: tuple[Rule, ...] = (
    Rule(
        "EngineTargetsMissing",
        f"kube_deployment_spec_replicas{{{_OURS}}} - on (namespace, deployment) "
        "kube_deployment_status_replicas_available > 0",
        "10m",
        TICKET,
        "fewer pods are available than wanted",
        "The endpoint's page has the cluster's own reasons and events.",
        about="deployment",
        needs=STATE,
    ),
    Rule(
        "PodCrashLoop",
        f"increase(kube_pod_container_status_restarts_total{{{_PODS}}}[30m]) > 2 or "
        f'kube_pod_container_status_waiting_reason{{{_PODS},reason=~"{_STUCK}"}} == 1',
        "5m",
        TICKET,
        "a container ends again and again, or cannot be started",
        "Its log, also of its former life, is on the endpoint's tab Logs.",
        about="pod",
        needs=STATE,
    ),
    Rule(
        "PodUnschedulable",
        f'kube_pod_status_phase{{{_PODS},phase="Pending"}} == 1',
        "15m",
        TICKET,
        "no node takes it",
        "The endpoint's events say what the scheduler lacks: mostly a GPU, or a tolerated taint.",
        about="pod",
        needs=STATE,
    ),
    Rule(
        "GPUXid",
        f"DCGM_FI_DEV_XID_ERRORS{{{_WORKERS}}} > 0 "
        f"and changes(DCGM_FI_DEV_XID_ERRORS{{{_WORKERS}}}[10m]) > 0",
        "0m",
        PAGE,
        "a GPU of its reported an error (Xid)",
        "Look the number up in NVIDIA's Xid catalogue; 79 and 95 want the node drained.",
        about="pod",
        needs=DCGM,
    ),
    Rule(
        "GPURowRemapFailure",
        f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_WORKERS}}} > 0",
        "0m",
        PAGE,
        "a GPU of its could not replace a broken row of memory",
        "Drain the node; the GPU wants a reset, and if it stays, a replacement.",
        about="pod",
        needs=DCGM,
    ),
    Rule(
        "GPUHot",
        f"DCGM_FI_DEV_GPU_TEMP{{{_WORKERS}}} > 88",
        "10m",
        TICKET,
        "a GPU of its is hot and will slow down",
        "Look at the node's fans and neighbours.",
        about="pod",
        needs=DCGM,
    ),
    Rule(
        "GPUAllocatedIdle",
        f"max_over_time(DCGM_FI_DEV_GPU_UTIL{{{_WORKERS}}}[1h]) < 5",
        "1h",
        TICKET,
        "a GPU of its has been paid for and not used for an hour",
        "Pause the endpoint, or let it scale to fewer workers.",
        about="pod",
        needs=DCGM,
    ),
)
