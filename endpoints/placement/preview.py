"""Preview of a spec's workload: worker command and cluster objects. Read only, secrets redacted.

The reconciler's result differs only in the L2 address, which is known once the tier serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from console.clusters import selectors as clusters
from console.core.errors import Problem
from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets
from endpoints.placement.installation import (
    installation,
    separate_routers_warning,
    unvalidated_arguments,
)
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.workload.worker_spec import L2Access, worker_spec

HIDDEN = "(hidden)"
PLACEHOLDER_ADDRESS = "redis://address-of-the-cache-tier:6379"


@dataclass(frozen=True, slots=True)
class Preview:
    """Preview of what an endpoint creates. `objects`: Kubernetes objects, on a cluster; `refused`:
    why there are none.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    objects: tuple[dict[str, Any], ...] = ()
    refused: str = ""
    image: str = ""
    notes: tuple[str, ...] = ()


def preview(spec: EndpointSpec, refused: Iterable[Problem] = ()) -> Preview:
    workload = workload_of(spec)
    env = {**workload.env, **dict.fromkeys(workload.secret_env, HIDDEN)}
    notes = [unvalidated_arguments(spec), separate_routers_warning(spec)]
    if spec.needs_cache_tier:
        notes.append(f"{PLACEHOLDER_ADDRESS} is a placeholder for the cache tier's address.")
    previewed = Preview(
        workload.argv,
        dict(sorted(env.items())),
        image=workload.image,
        notes=tuple(filter(None, notes)),
    )
    reasons = " ".join(
        f"{problem.field}: {problem.message} {problem.remedy}" for problem in refused
    )
    if reasons:
        return replace(previewed, refused=reasons)
    if not spec.on_cluster:
        return previewed
    hidden = Secrets(
        env=dict.fromkeys(workload.secret_env, HIDDEN),
        files=dict.fromkeys(workload.secret_files, HIDDEN),
    )
    try:
        namespace = clusters.namespace(spec.placement.cluster, spec.placement.namespace)
        able = clusters.capabilities(spec.placement.cluster) or frozenset()
        objects = render(workload, RenderingTarget(namespace, able), hidden)
    except PermanentError as error:
        return replace(previewed, refused=f"{error.reason}: {error.message}")
    return replace(previewed, objects=objects)


def workload_of(spec: EndpointSpec) -> WorkloadSpec:
    """Return the workload; workers restart only if it differs beyond `replicas`."""
    return worker_spec(spec, installation(spec), _l2(spec))


def _l2(spec: EndpointSpec) -> L2Access | None:
    l2 = spec.cache.l2
    if not l2.enabled:
        return None
    if spec.needs_cache_tier:
        return L2Access(PLACEHOLDER_ADDRESS)
    return L2Access(l2.url, l2.password_file, str(settings.EMBERLINE.l2_secrets))
