"""A workload's spec in, all its Kubernetes objects out, in the order in which to apply them.

Promises a pure function: the same spec, target and secrets give the same objects, each with the
labels it is found by. The first is the anchor; `anchor.owned` makes the others its own once its uid
is known. What the cluster cannot carry is refused here (`MissingCapability`), before anything is
touched. Must not know Kubernetes' client.

For whoever applies: `spec.replicas` is left out while an autoscaler decides. A field which leaves
our apply goes back to its default (one!) when nobody else owns it, so whoever turns autoscaling on
hands the present number over to another field manager first.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import WorkloadSpec
from console.provisioners.checks import check_spec
from console.provisioners.kubernetes.rendering.anchor import anchor
from console.provisioners.kubernetes.rendering.files import file_objects
from console.provisioners.kubernetes.rendering.names import check_names
from console.provisioners.kubernetes.rendering.services import services
from console.provisioners.kubernetes.rendering.target import Secrets, Target
from console.provisioners.kubernetes.rendering.volumes import share_objects
from console.provisioners.kubernetes.rendering.workload import workload


def render(spec: WorkloadSpec, target: Target, secrets: Secrets) -> tuple[dict[str, Any], ...]:
    check_spec(spec)
    check_names(spec)
    objects = [
        *file_objects(spec, target, secrets),
        *share_objects(spec, target),
        *services(spec, target),
        workload(spec, target),
    ]
    return (anchor(spec, target, objects), *objects)
