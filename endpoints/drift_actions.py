"""Heal or adopt fields that were changed in the cluster.

Writes an order and its audit entry in one transaction; the reconciler carries it out. Healing is
allowed on an endpoint owned by a cluster object, since it restores the object's values; adopting is
not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from console.audit.record import record
from endpoints import actions, selectors, teams
from endpoints.actions import Actor
from endpoints.choices import DriftVerb
from endpoints.models import DriftOrder, Endpoint
from endpoints.refusals import ConflictError, no_drift
from endpoints.workload.worker_spec import workload_name

_SPEC_FIELDS = {".spec.replicas": "replicas"}
"""Deployment fields with a field in the spec, which adopting changes."""


def heal(actor: Actor, name: str, workload: str = "") -> Endpoint:
    """Order the reset of every drifted field of a workload ("": the workers)."""
    teams.require_change(actor, name)
    with transaction.atomic():
        endpoint = _on_cluster(actions.require_not_deleting(actions.lock_changeable(actor, name)))
        chosen = workload or workload_name(name)
        _known_workload(endpoint, chosen)
        _write_order(endpoint, DriftVerb.HEAL, chosen, "")
        changes = {
            row["key"]: [row["found"], row["wanted"]] for row in _find_drift(endpoint, chosen)
        }
        record(actions.user_of(actor), "heal", actions.target_of(endpoint), changes)
        actions.nudge(endpoint)
    return endpoint


def adopt(actor: Actor, name: str, key: str) -> Endpoint:
    """Accept a drifted value: into the spec if it has such a field, else by releasing the field."""
    teams.require_change(actor, name)
    endpoint = _on_cluster(actions.require_not_deleting(selectors.get(name)))
    row = next((row for row in endpoint.status.drift if row["key"] == key), None)
    if row is None:
        raise no_drift(name, key)
    field = _spec_field(name, row)
    if field:
        return actions.patch(actor, name, {field: row["found"]}, verb=str(DriftVerb.ADOPT))
    with transaction.atomic():
        endpoint = actions.require_not_deleting(actions.lock_changeable(actor, name))
        actions.require_owner(actor, endpoint)
        _write_order(endpoint, DriftVerb.ADOPT, row["workload"], key)
        changes = {key: [row["wanted"], row["found"]]}
        record(actions.user_of(actor), "adopt", actions.target_of(endpoint), changes)
        actions.nudge(endpoint)
    return endpoint


def _spec_field(name: str, row: Mapping[str, Any]) -> str:
    mine = row["object"] in (f"{kind}/{workload_name(name)}" for kind in _KINDS)
    return _SPEC_FIELDS.get(row["path"], "") if mine else ""


_KINDS = ("Deployment", "StatefulSet")


def _find_drift(endpoint: Endpoint, workload: str) -> list[dict[str, Any]]:
    return [row for row in endpoint.status.drift if row["workload"] == workload]


def _known_workload(endpoint: Endpoint, workload: str) -> None:
    rows = (*endpoint.status.drift, *endpoint.status.pods, *endpoint.status.conditions)
    if workload not in {workload_name(endpoint.name), *(row["workload"] for row in rows)}:
        raise no_drift(endpoint.name, workload)


def _on_cluster(endpoint: Endpoint) -> Endpoint:
    if not endpoint.parsed.on_cluster:
        raise ConflictError(
            "not_on_a_cluster",
            f"{endpoint.name} runs on this machine, where no drift occurs.",
            "No action needed.",
        )
    return endpoint


def _write_order(endpoint: Endpoint, verb: DriftVerb, workload: str, key: str) -> None:
    DriftOrder.objects.get_or_create(endpoint=endpoint, verb=verb, workload=workload, key=key)
