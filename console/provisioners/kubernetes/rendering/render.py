"""A workload's spec in, all its Kubernetes objects out, in the order in which to apply them.

Promises a pure function: the same spec, target and secrets give the same objects, each with the
labels it is found by. The first is the anchor; `anchor.owned` makes the others its own once its uid
is known. What the cluster cannot carry is refused here (`MissingCapability`), before anything is
touched. Must not know Kubernetes' client.

For whoever applies: `declined.declined` says what the cluster does without. An autoscaler that is
no longer rendered goes before another one comes (KEDA refuses a second for one target).
`spec.replicas` is left out while an autoscaler decides. A field which leaves our apply goes back to
its default (one!) when nobody else owns it, so whoever turns autoscaling on hands the present
number over to another field manager first.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.rendering.anchor import anchor
from console.provisioners.kubernetes.rendering.autoscaler import autoscalers, disruption_budgets
from console.provisioners.kubernetes.rendering.exposure import exposure_objects
from console.provisioners.kubernetes.rendering.files import file_objects
from console.provisioners.kubernetes.rendering.monitors import monitors
from console.provisioners.kubernetes.rendering.names import check_names
from console.provisioners.kubernetes.rendering.network import network_policies
from console.provisioners.kubernetes.rendering.rights import rights
from console.provisioners.kubernetes.rendering.services import services
from console.provisioners.kubernetes.rendering.target import Secrets, Target
from console.provisioners.kubernetes.rendering.volumes import share_objects
from console.provisioners.kubernetes.rendering.workload import workload
from console.provisioners.specs import check_spec


def render(spec: WorkloadSpec, target: Target, secrets: Secrets) -> tuple[dict[str, Any], ...]:
    check_spec(spec)
    check_names(spec)
    objects = [
        *file_objects(spec, target, secrets),
        *rights(spec, target),
        *share_objects(spec, target),
        *services(spec, target),
        # Before the pods: none is reachable by more than the policy says, not even at first.
        *network_policies(spec, target),
        *disruption_budgets(spec, target),
        workload(spec, target),
        *autoscalers(spec, target),
        *exposure_objects(spec, target),
        *monitors(spec, target),
    ]
    return (anchor(spec, target, objects), *objects)
