"""The Services of a workload: one address for callers, and one name for each pod. Pure."""

from __future__ import annotations

from typing import Any

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.rendering.monitors import scrape_annotations
from console.provisioners.kubernetes.rendering.names import made, pods_name, selector
from console.provisioners.kubernetes.rendering.ports import numbers
from console.provisioners.kubernetes.rendering.target import Target


def services(spec: WorkloadSpec, target: Target) -> list[dict[str, Any]]:
    """`NAME` has the ports; `NAME-pods` has no address of its own, and the channels as well."""
    known = numbers(spec)
    own = [_port(name, known[name]) for name in spec.ports]
    each = [_port(name, number) for name, number in known.items()]
    common = {"selector": selector(spec.name), "type": "ClusterIP"}
    headless = {
        **common,
        "clusterIP": "None",
        # A pod that is not ready, or is about to end, is not to be found.
        "publishNotReadyAddresses": False,
        "ports": each,
    }
    space, notes = target.namespace, scrape_annotations(spec, target)
    body = {"spec": {**common, "ports": own}}
    return [
        made(spec, space, "v1", "Service", spec.name, body),
        made(spec, space, "v1", "Service", pods_name(spec.name), {"spec": headless}, notes),
    ]


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}
