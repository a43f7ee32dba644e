"""Prometheus scrape configuration of a workload.

Scraped series carry the same labels as those from the console's target list, so boards and
alerts use one query everywhere. Enabling or disabling monitoring restarts no pod.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.capabilities import PROMETHEUS_OPERATOR
from console.provisioners.kubernetes.rendering.names import (
    around_of,
    make_object,
    owner_name,
    port_numbers,
    selector,
)
from console.provisioners.kubernetes.rendering.target import RenderingTarget

# By role: the job, and the label that names the owner.
_LABELS = {
    "worker": ("vllm", "endpoint_name"),
    "router": ("router", "endpoint_name"),
    "cache-node": ("l2", "pool"),
}


def monitors(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    """Return monitors; empty without the Prometheus operator (Services are annotated instead)."""
    around = around_of(spec)
    if PROMETHEUS_OPERATOR not in target.capabilities or not around.scrape:
        return []
    body = {
        "selector": {"matchLabels": selector(spec.name)},
        "podMetricsEndpoints": [
            {
                "port": scrape.port,
                "path": scrape.path,
                "interval": f"{scrape.interval_s}s",
                # The router's metrics already have an `endpoint` label.
                "honorLabels": True,
                "relabelings": _relabelings(spec),
            }
            for scrape in around.scrape
        ],
    }
    return [make_object(spec, target.namespace, kinds.POD_MONITOR, {"spec": body})]


def scrape_annotations(spec: WorkloadSpec, target: RenderingTarget) -> dict[str, str]:
    """Return annotations for the headless Service, used without the operator. On pods, every change
    would replace them.
    """
    around = around_of(spec)
    if not around.scrape or PROMETHEUS_OPERATOR in target.capabilities:
        return {}
    first = around.scrape[0]
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port_numbers(spec)[first.port]),
        "prometheus.io/path": first.path,
    }


def _relabelings(spec: WorkloadSpec) -> list[dict[str, Any]]:
    job, whose = _LABELS.get(spec.role, (spec.role, "owner"))
    labels = {"job": job, whose: owner_name(spec.owner)}
    return [
        {"action": "labeldrop", "regex": "endpoint|container"},
        *(
            {"action": "replace", "targetLabel": label, "replacement": value}
            for label, value in labels.items()
        ),
    ]
