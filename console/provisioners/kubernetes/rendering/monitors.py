"""How Prometheus finds a workload, and which alerts it has.

Promises that metrics carry the labels which the console's own list of targets gives them, so that a
board or an alert asks in one way wherever a process runs; and that turning this on or off restarts
no pod. Must not know a metric.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.api.capabilities import PROMETHEUS_OPERATOR
from console.provisioners.kubernetes.rendering.names import (
    around_of,
    made,
    numbers,
    owner_name,
    selector,
)
from console.provisioners.kubernetes.rendering.target import RenderingTarget

_VERSION = "monitoring.coreos.com/v1"
# By role: the job, and the label which says whose it is.
_LABELS = {
    "worker": ("vllm", "endpoint_name"),
    "router": ("router", "endpoint_name"),
    "cache-node": ("l2", "pool"),
}


def monitors(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    """Nothing where there is no operator to read it: then Services are annotated."""
    around = around_of(spec)
    if PROMETHEUS_OPERATOR not in target.capabilities:
        return []
    out = []
    if around.scrape:
        body = {
            "selector": {"matchLabels": selector(spec.name)},
            "podMetricsEndpoints": [
                {
                    "port": scrape.port,
                    "path": scrape.path,
                    "interval": f"{scrape.interval_s}s",
                    # The router's metrics say `endpoint` themselves.
                    "honorLabels": True,
                    "relabelings": _relabelings(spec),
                }
                for scrape in around.scrape
            ],
        }
        out.append(made(spec, target.namespace, _VERSION, "PodMonitor", spec.name, {"spec": body}))
    if around.rules:
        groups = {"groups": [dict(group) for group in around.rules]}
        kind = "PrometheusRule"
        out.append(made(spec, target.namespace, _VERSION, kind, spec.name, {"spec": groups}))
    return out


def scrape_annotations(spec: WorkloadSpec, target: RenderingTarget) -> dict[str, str]:
    """For the Service of single pods, where no operator reads a monitor. They name one port; on
    pods they would say the same, but every change of them would replace the pods."""
    around = around_of(spec)
    if not around.scrape or PROMETHEUS_OPERATOR in target.capabilities:
        return {}
    first = around.scrape[0]
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(numbers(spec)[first.port]),
        "prometheus.io/path": first.path,
    }


def _relabelings(spec: WorkloadSpec) -> list[dict[str, Any]]:
    job, whose = _LABELS.get(spec.role, (spec.role, "owner"))
    given = {"job": job, whose: owner_name(spec.owner)}
    return [
        {"action": "labeldrop", "regex": "endpoint|container"},
        *(
            {"action": "replace", "targetLabel": label, "replacement": value}
            for label, value in given.items()
        ),
    ]
