"""Settings of the alert objects in a cluster: validate, write, record.

A rejected action changes nothing; every accepted one is in the audit log. The objects include
receiver addresses, so changes need the admin role.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor as account
from console.accounts.permissions import require
from console.audit.record import diff, record
from console.claims import mark_due
from console.core.errors import Problem, Refused, expect_generation
from dashboards.alerts.alertmanager import input_values
from dashboards.alerts.cluster_objects import selectors, tasks
from dashboards.alerts.cluster_objects.models import ClusterAlerts, ClusterAlertsStatus
from dashboards.alerts.cluster_objects.objects.manifests import check_labels
from endpoints.spec.validators import label_name_problem

FIELDS: Final = ("rules", "receivers", "namespace", "labels")


def change(
    actor: Any, cluster: str, data: Any, *, expected_generation: int | None = None
) -> ClusterAlerts:
    """Set the given fields; omitted fields keep their values."""
    require(actor, "admin")
    with transaction.atomic():
        stored = selectors.one(cluster)
        locked = ClusterAlerts.objects.select_for_update().filter(cluster=stored.cluster)
        row = locked.first() or stored.row
        expect_generation(f"Alerts in {cluster}", row.generation, expected_generation)
        before = facts(row)
        after = _merge_fields(before, data)
        if after["receivers"] and not before["receivers"]:
            _expect_alertmanager(cluster)
        if after != before:
            for name, value in after.items():
                setattr(row, name, value)
            row.generation += 1
            row.changed_at, row.changed_by = timezone.now(), account(actor)
            row.save()
            ClusterAlertsStatus.objects.get_or_create(alerts=row)
            record(actor, "alert-objects.update", f"cluster/{cluster}", diff(before, after))
            _wake(row)
    return row


def check(actor: Any, cluster: str) -> None:
    """Schedule an immediate reconcile pass."""
    require(actor, "operator")
    with transaction.atomic():
        _wake(selectors.one(cluster).row)


def facts(row: ClusterAlerts) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FIELDS}


def _merge_fields(before: Mapping[str, Any], data: Any) -> dict[str, Any]:
    mapping = input_values.parse_mapping(data, FIELDS)
    whole = {**before, **mapping}
    namespace, labels = input_values.parse_text(whole, "namespace", 63), whole["labels"]
    wrong = label_name_problem(namespace)
    if wrong is not None:
        raise Refused(Problem("namespace", namespace, wrong[0], wrong[1], wrong[2]))
    check_labels(labels)
    return {
        "rules": input_values.parse_flag(whole, "rules", False),
        "receivers": input_values.parse_flag(whole, "receivers", False),
        "namespace": namespace,
        "labels": dict(labels),
    }


def _expect_alertmanager(cluster: str) -> None:
    if not selectors.has_alertmanager(cluster):
        text = f"No Alertmanager is configured for {cluster}: the console sends its notifications."
        remedy = "Set its address in the metrics source first, to avoid duplicates."
        problem = Problem("receivers", True, text, remedy, "no_alertmanager")
        raise Refused(problem, status_code=409)


def _wake(row: ClusterAlerts) -> None:
    if row.generation:
        mark_due(ClusterAlertsStatus, str(row.pk))
        tasks.keep.nudge(str(row.pk))
