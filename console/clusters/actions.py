"""Actions on clusters: validate, apply, notify and write the audit log.

Kubeconfigs are encrypted before they are stored and never appear in the audit log. Adding a cluster
grants access and requires an admin; `actor` None is the console itself (command line).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.models import User
from console.accounts.permissions import require
from console.audit.record import HIDDEN, record
from console.claims import mark_due
from console.clusters import refresh, tasks, validation
from console.clusters.models import Cluster, ClusterStatus
from console.core import uses
from console.core.errors import Problem, Refused, expect_generation
from console.vault import encryption
from console.vault.key_rotation import EncryptedColumns

SEALED = EncryptedColumns(
    Cluster,
    ("kubeconfig",),
    purpose=lambda cluster, _column: cluster.purpose,
    title=lambda cluster: f"cluster/{cluster.name}",
)


def add_cluster(actor: User | None, name: Any, data: Mapping[str, Any]) -> Cluster:
    """Add a cluster; it is checked asynchronously."""
    _require_admin(actor)
    fields = validation.validate_new({**data, "name": name})
    try:
        return _create(actor, fields)
    except IntegrityError:
        text = f"Cluster {name} already exists."
        raise Refused(
            Problem("name", name, text, "Use another name, or edit the existing cluster.", "taken"),
            status_code=409,
        ) from None


def _create(actor: User | None, facts: dict[str, Any]) -> Cluster:
    name = facts["name"]
    with transaction.atomic():
        cluster = Cluster(created_by=stored_actor(actor))
        _set(cluster, facts)
        cluster.save(force_insert=True)
        ClusterStatus.objects.create(cluster=cluster)
        details = {key: value for key, value in facts.items() if key != "name"}
        record(actor, "create", f"cluster/{name}", _hide_secrets(details))
        tasks.refresh_cluster.nudge(str(cluster.pk))
    return cluster


def change_cluster(
    actor: User | None,
    name: str,
    data: Mapping[str, Any],
    *,
    expected_generation: int | None = None,
) -> Cluster:
    """Change kubeconfig, context, namespace or reach; workloads keep running."""
    _require_admin(actor)
    with transaction.atomic():
        cluster = _lock_cluster(name)
        expect_generation(f"Cluster {name}", cluster.generation, expected_generation)
        changes = validation.validate_changes(cluster, data)
        changed = {
            key: value
            for key, value in changes.items()
            if key == "kubeconfig" or getattr(cluster, key) != value  # encrypted: not compared
        }
        if not changed:
            return cluster
        before = {key: getattr(cluster, key) for key in changed}
        _set(cluster, changed)
        cluster.generation += 1
        cluster.changed_at = timezone.now()
        cluster.save()
        after = _hide_secrets(changed)
        trail = {key: [_hide_secrets(before)[key], after[key]] for key in changed}
        record(actor, "update", f"cluster/{name}", trail)
        _request_refresh(cluster)
    return cluster


def check_cluster(actor: User, name: str, *, wait: bool = False) -> None:
    """Request a refresh now; with `wait`, return when it is done."""
    require(actor, "operator")
    if wait:
        refresh.refresh_now(str(_find_cluster(name).pk))
        return
    with transaction.atomic():
        cluster = _lock_cluster(name)
        mark_due(ClusterStatus, str(cluster.pk))
        tasks.refresh_cluster.nudge(str(cluster.pk), tasks.REPEATS)


def remove_cluster(
    actor: User | None, name: str, *, expected_generation: int | None = None
) -> None:
    """Delete the cluster and its credentials; raise while anything is placed there."""
    _require_admin(actor)
    with transaction.atomic():
        cluster = _lock_cluster(name)
        expect_generation(f"Cluster {name}", cluster.generation, expected_generation)
        used_by = uses.of("cluster", name)
        if used_by:
            text = f"Cluster {name} is used by {', '.join(used_by)}."
            remedy = "Delete them first: their objects cannot be removed without the cluster."
            raise Refused(Problem("name", name, text, remedy, "in_use"), status_code=409)
        cluster.delete()
        record(actor, "delete", f"cluster/{name}")


def _require_admin(actor: User | None) -> None:
    if actor is not None:
        require(actor, "admin")


def _set(cluster: Cluster, facts: Mapping[str, Any]) -> None:
    for key, value in facts.items():
        sealed = encryption.seal(value, cluster.purpose) if key == "kubeconfig" and value else value
        setattr(cluster, key, sealed)


def _hide_secrets(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: HIDDEN if key == "kubeconfig" and value else str(value) for key, value in facts.items()
    }


def _lock_cluster(name: str) -> Cluster:
    return _find_cluster(name, Cluster.objects.select_for_update(no_key=True))


def _find_cluster(name: str, among: QuerySet[Cluster] | None = None) -> Cluster:
    cluster = (among if among is not None else Cluster.objects.all()).filter(name=name).first()
    if cluster is None:
        text = f"Cluster {name} does not exist."
        raise Refused(
            Problem("name", name, text, "Choose one from the list of clusters.", "not_found"),
            status_code=404,
        )
    return cluster


def _request_refresh(cluster: Cluster) -> None:
    mark_due(ClusterStatus, str(cluster.pk))
    tasks.refresh_cluster.nudge(str(cluster.pk))
