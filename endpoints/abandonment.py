"""The end of an endpoint whose cluster is gone for good: it is forgotten, and nothing is removed.

Promises what `actions` does, and that it is refused while the cluster answers, before anything is
changed; that what may be left there is said and in the audit trail. Of all that is asked for, this
alone looks at a cluster first: the answer is the permission.
"""

from __future__ import annotations

from django.db import transaction

from console.audit.record import record
from console.clusters import removal_proof
from console.clusters.removal_proof import RemainingObjects
from console.provisioners.base import Ref
from endpoints import actions, selectors, teams
from endpoints.actions import Actor
from endpoints.models import Endpoint
from endpoints.owners import managed, owner_of
from endpoints.placement.provisioner import provisioner_of
from endpoints.reconcile.removal import forget
from endpoints.refusals import ConflictError, stale
from endpoints.workload.worker_spec import workload_name


def left(endpoint: Endpoint, why: str = "") -> RemainingObjects:
    """What may be left of it in its cluster."""
    at = endpoint.parsed.placement
    return removal_proof.left(at.cluster, at.namespace, f"endpoint/{endpoint.name}", why)


def abandon(
    actor: Actor, name: str, *, expected_generation: int | None = None, request_id: str = ""
) -> RemainingObjects:
    """Forget it, also while it is being deleted. Takes as long as a cluster may be silent."""
    teams.allow(actor, name)
    seen = _given_up(selectors.get(name), expected_generation)
    cluster = seen.parsed.placement.cluster
    why = removal_proof.prove(cluster, lambda: _ask(seen))
    rest = left(seen, why)
    with transaction.atomic():
        endpoint = actions.held(actor, name)
        # Whatever was made or changed meanwhile may be elsewhere.
        if (endpoint.pk, endpoint.generation) != (seen.pk, seen.generation):
            raise stale(name, endpoint.generation, seen.generation)
        facts = {
            "cluster": rest.cluster,
            "namespace": rest.namespace,
            "selector": rest.selector,
            "why": why,
        }
        record(actions.user_of(actor), "abandon", actions.target_of(endpoint), facts, request_id)
        forget(endpoint)
    return rest


def _given_up(endpoint: Endpoint, expected: int | None) -> Endpoint:
    name, cluster = endpoint.name, endpoint.parsed.placement.cluster
    if not endpoint.parsed.on_cluster:
        raise ConflictError(
            "not_on_a_cluster",
            f"{name} runs on this machine, which is not gone.",
            "Delete it.",
            field="abandon",
        )
    owner = owner_of(name)
    if owner is not None and owner.cluster != cluster:  # an object of the same is gone with it
        raise managed(name, owner)
    if expected is not None and expected != endpoint.generation:
        raise stale(name, endpoint.generation, expected)
    return endpoint


def _ask(endpoint: Endpoint) -> None:
    provisioner = provisioner_of(endpoint.parsed)
    provisioner.observe(Ref(provisioner.name, workload_name(endpoint.name)))
