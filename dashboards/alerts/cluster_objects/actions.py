"""Settings of the alert objects in a cluster: validate, write, record.

A rejected action changes nothing; every accepted one is in the audit log. The objects include
receiver addresses, so changes need the admin role.
"""

from __future__ import annotations

from typing import Any, Final

from django.db import transaction
from django.utils import timezone
from rest_framework import serializers

from console.accounts.credentials import stored_actor as account
from console.accounts.permissions import require
from console.api.bodies import read_body
from console.audit.record import diff, record
from console.claims import mark_due
from console.core.errors import Problem, Refused, expect_generation
from console.web.forms import MONOSPACE
from dashboards.alerts.cluster_objects import selectors, tasks
from dashboards.alerts.cluster_objects.models import ClusterAlerts, ClusterAlertsStatus
from dashboards.alerts.fields import check_object_labels


class ClusterAlertsFields(serializers.Serializer[ClusterAlerts]):
    """All fields are optional; omitted fields keep their values."""

    rules = serializers.BooleanField(
        required=False,
        label="Sync alert rules",
        help_text="Maintains a PrometheusRule with the current settings.",
    )
    receivers = serializers.BooleanField(
        required=False,
        label="Sync receivers and routes",
        help_text="Maintains an AlertmanagerConfig and a Secret with URLs. Needs an Alertmanager "
        "in the cluster's metrics source, which then sends notifications instead of the console.",
    )
    namespace = serializers.RegexField(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z",
        required=False,
        allow_blank=True,
        help_text="Lower-case letters, digits and hyphens; empty: the cluster's default namespace.",
    )
    labels = serializers.DictField(
        child=serializers.CharField(allow_blank=True),
        required=False,
        validators=[check_object_labels],
        help_text="Of each object, such as release=prometheus. Required labels of the operator's "
        "ruleSelector and alertmanagerConfigSelector.",
        style={"rows": 3, **MONOSPACE},
    )


FIELDS: Final = tuple(ClusterAlertsFields().fields)


def change(
    actor: Any, cluster: str, data: Any, *, expected_generation: int | None = None
) -> ClusterAlerts:
    """Set the given fields; omitted fields keep their values."""
    require(actor, "admin")
    with transaction.atomic():
        stored = selectors.one(cluster)
        locked = ClusterAlerts.objects.select_for_update(no_key=True).filter(cluster=stored.cluster)
        row = locked.first() or stored.row
        expect_generation(f"Alerts in {cluster}", row.generation, expected_generation)
        before = facts(row)
        after = {**before, **read_body(ClusterAlertsFields, data)}
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
