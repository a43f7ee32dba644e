"""GPU resource of an endpoint's workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.provisioners.pods import Pod
from endpoints.spec.endpoint_spec import EndpointSpec

_GPU_DOMAINS = ("nvidia.com/", "amd.com/")


def gpu_resource(spec: EndpointSpec) -> tuple[str, int]:
    named = _gpus_named(spec.pod.resources)
    return named or (Pod().gpu_resource, spec.resources.gpus)


def gpus_of(pod_resources: Mapping[str, Any], gpus: int) -> int:
    """Return the GPUs per worker; `pod_resources` takes precedence."""
    named = _gpus_named(pod_resources)
    return named[1] if named else gpus


def _gpus_named(resources: Mapping[str, Any]) -> tuple[str, int] | None:
    for part in ("limits", "requests"):
        given = resources.get(part)
        for name, count in given.items() if isinstance(given, Mapping) else ():
            if str(name).startswith(_GPU_DOMAINS) and str(count).isdecimal():
                return str(name), int(count)
    return None
