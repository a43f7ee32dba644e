"""Settings of the alert objects in a cluster: validate, write, record.

A rejected action changes nothing; every accepted one is in the audit log. The objects include
receiver addresses, so changes need the admin role.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from console.accounts.credentials import row as account
from console.accounts.permissions import require
from console.audit.record import diff, record
from console.claims import mark_due
from console.clusters import selectors as clusters
from console.clusters.choices import IN_CLUSTER
from console.core.errors import Problem, Refused, expect_generation
from dashboards.alerts.cluster_objects import selectors, tasks
from dashboards.alerts.cluster_objects.models import ClusterAlerts, ClusterAlertsStatus
from dashboards.alerts.cluster_objects.objects.manifests import OWN_LABELS
from dashboards.alerts.notify import input_values
from endpoints.spec.validators import key_values_problem, label_name_problem

FIELDS: Final = ("rules", "receivers", "namespace", "labels")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_MOST = 20


def change(
    actor: Any, cluster: str, data: Any, *, expected_generation: int | None = None
) -> ClusterAlerts:
    """Set the given fields; omitted fields keep their values."""
    require(actor, "admin")
    with transaction.atomic():
        found = selectors.one(cluster)
        row = _locked(found)
        expect_generation(f"Alerts in {cluster}", row.generation, expected_generation)
        before = facts(row)
        after = _asked(before, data)
        if after["receivers"] and not before["receivers"]:
            _expect_alertmanager(cluster)
        if after != before:
            for name, value in after.items():
                setattr(row, name, value)
            row.generation += 1
            row.changed_at, row.changed_by = timezone.now(), account(actor)
            row.save()
            ClusterAlertsStatus.objects.get_or_create(alerts=row)
            record(actor, "set alerts", f"cluster/{cluster}", diff(before, after))
            _wake(row)
    return row


def ensure_in_cluster() -> None:
    """Create the row of the console's own cluster from the installer's settings, once.

    An existing row is never changed. Of concurrent callers, one creates the row.
    """
    asked = settings.EMBERLINE.alert_objects
    row = clusters.get(IN_CLUSTER)
    if not asked or row is None or ClusterAlerts.objects.filter(cluster=row).exists():
        return
    labels = dict(settings.EMBERLINE.alert_object_labels)
    _check_labels(labels)
    wish = {name: name in asked for name in ("rules", "receivers")}
    try:
        with transaction.atomic():
            made = ClusterAlerts(cluster=row, labels=labels, **wish)
            made.save(force_insert=True)
            ClusterAlertsStatus.objects.create(alerts=made)
            record(None, "set alerts", f"cluster/{IN_CLUSTER}", {**wish, "labels": labels})
    except IntegrityError:
        return


def check(actor: Any, cluster: str) -> None:
    """Schedule an immediate reconcile pass."""
    require(actor, "operator")
    with transaction.atomic():
        _wake(selectors.one(cluster).row)


def facts(row: ClusterAlerts) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FIELDS}


def _locked(found: selectors.ClusterAlertsSummary) -> ClusterAlerts:
    kept = ClusterAlerts.objects.select_for_update().filter(cluster=found.cluster).first()
    return kept or found.row


def _asked(before: Mapping[str, Any], data: Any) -> dict[str, Any]:
    given = input_values.mapping(data, FIELDS)
    whole = {**before, **given}
    namespace, labels = input_values.text(whole, "namespace", 63), whole["labels"]
    wrong = label_name_problem(namespace)
    if wrong is not None:
        raise Refused(Problem("namespace", namespace, wrong[0], wrong[1], wrong[2]))
    _check_labels(labels)
    return {
        "rules": input_values.flag(whole, "rules", False),
        "receivers": input_values.flag(whole, "receivers", False),
        "namespace": namespace,
        "labels": dict(labels),
    }


def _check_labels(labels: Any) -> None:
    if not isinstance(labels, Mapping) or len(labels) > _MOST:
        remedy = f'Write at most {_MOST} as {{"release": "prometheus"}}.'
        raise Refused(Problem("labels", None, "These are no labels.", remedy, "type"))
    wrong = key_values_problem(labels)
    if wrong is not None:
        raise Refused(Problem("labels", None, *wrong))
    for name, value in labels.items():
        if not _VALUE.fullmatch(value):
            text = f"{value[:80]!r} cannot be the value of a label."
            remedy = "Use at most 63 letters, digits, dots, dashes and underscores."
            raise Refused(Problem("labels", name, text, remedy, "invalid_value"))
        if name in OWN_LABELS:
            text = f"{name} says that the object is this console's."
            raise Refused(Problem("labels", name, text, "Leave it out.", "taken"))


def _expect_alertmanager(cluster: str) -> None:
    if not selectors.has_alertmanager(cluster):
        text = f"No Alertmanager is known for {cluster}: the console tells its alerts itself."
        remedy = "Give its address with the cluster's metrics source first; else both would tell."
        problem = Problem("receivers", True, text, remedy, "no_alertmanager")
        raise Refused(problem, status_code=409)


def _wake(row: ClusterAlerts) -> None:
    if row.generation:
        mark_due(ClusterAlertsStatus, str(row.pk))
        tasks.keep.nudge(str(row.pk))
