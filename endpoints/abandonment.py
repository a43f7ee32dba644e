"""Abandon an endpoint whose cluster is unreachable for good: its rows go, no cluster object is
deleted.

Refused while the cluster answers; nothing is changed then. Objects that may remain in the cluster
are returned and written to the audit log.
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
from endpoints.owners import owned_error, owner_of
from endpoints.placement.provisioner import provisioner_of
from endpoints.reconcile.removal import delete_rows
from endpoints.refusals import ConflictError, stale
from endpoints.workload.worker_spec import workload_name


def remaining_objects(endpoint: Endpoint, why: str = "") -> RemainingObjects:
    placement = endpoint.parsed.placement
    return removal_proof.list_remaining(
        placement.cluster, placement.namespace, f"endpoint/{endpoint.name}", why
    )


def abandon(actor: Actor, name: str, *, expected_generation: int | None = None) -> RemainingObjects:
    """Remove the console's rows of the endpoint, also during a deletion. Blocks for up to the
    cluster's call timeout.
    """
    teams.require_change(actor, name)
    left = _require_abandonable(selectors.get(name), expected_generation)
    cluster = left.parsed.placement.cluster
    why = removal_proof.prove_removal(cluster, lambda: _probe_cluster(left))
    rest = remaining_objects(left, why)
    with transaction.atomic():
        endpoint = actions.lock_changeable(actor, name)
        # An endpoint recreated or changed since the check may be on another cluster.
        if (endpoint.pk, endpoint.generation) != (left.pk, left.generation):
            raise stale(name, endpoint.generation, left.generation)
        details = {
            "cluster": rest.cluster,
            "namespace": rest.namespace,
            "selector": rest.selector,
            "why": why,
        }
        record(actions.user_of(actor), "abandon", actions.target_of(endpoint), details)
        delete_rows(endpoint)
    return rest


def _require_abandonable(endpoint: Endpoint, expected: int | None) -> Endpoint:
    name, cluster = endpoint.name, endpoint.parsed.placement.cluster
    if not endpoint.parsed.on_cluster:
        raise ConflictError(
            "not_on_a_cluster",
            f"{name} runs on this machine, not on a cluster.",
            "Delete it instead.",
            field="abandon",
        )
    owner = owner_of(name)
    # objects of the same cluster are lost with it
    if owner is not None and owner.cluster != cluster:
        raise owned_error(name, owner)
    if expected is not None and expected != endpoint.generation:
        raise stale(name, endpoint.generation, expected)
    return endpoint


def _probe_cluster(endpoint: Endpoint) -> None:
    provisioner = provisioner_of(endpoint.parsed)
    provisioner.observe(Ref(provisioner.name, workload_name(endpoint.name)))
