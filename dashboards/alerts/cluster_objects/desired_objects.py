"""Desired alert objects of a cluster, computed from database rows without a cluster request.

Receivers are handed to a cluster only where its Alertmanager is configured: otherwise the console
would send the same alerts again. Changes are detected without decrypting a secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils.crypto import salted_hmac

from console.clusters.choices import IN_CLUSTER
from dashboards.alerts.cluster_objects import selectors
from dashboards.alerts.cluster_objects.models import ClusterAlerts
from dashboards.alerts.cluster_objects.objects import manifests as bodies
from dashboards.alerts.notify import deliveries
from dashboards.alerts.notify import selectors as notify
from dashboards.alerts.notify.protocol import alertmanager_config
from dashboards.alerts.notify.protocol.alertmanager_config import AlertmanagerExport
from dashboards.alerts.rules.rule_file import Settings
from dashboards.alerts.settings import selectors as alerting

_NO_ALERTMANAGER = (
    "No Alertmanager is known for the cluster any more: the console tells its alerts itself, so "
    "receivers are not kept there. Give its address with the metrics source."
)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Inputs shared by all clusters. `generations`: of the receivers, since addresses are
    secret."""

    rules: Settings
    told: AlertmanagerExport
    generations: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DesiredObjects:
    """`trouble`: why some objects are missing, with its `reason`; the others are kept anyway."""

    bodies: tuple[dict[str, Any], ...]
    reason: str = ""
    trouble: str = ""


def load_facts() -> ClusterFacts:
    generations = tuple(notify.receivers().values_list("name", "generation"))
    return ClusterFacts(alerting.settings(), notify.alertmanager_export(), generations)


def desired_digest(row: ClusterAlerts, known: ClusterFacts) -> str:
    found = [_rules(row, known)] if row.rules else []
    if not row.receivers:
        return bodies.objects_digest(found, row.generation)
    password = salted_hmac(__name__, settings.MAIL.password).hexdigest()
    told = (known.told.spec(), known.generations, password)
    return bodies.objects_digest(
        found, row.generation, selectors.has_alertmanager(row.cluster.name), *told
    )


def build_desired(row: ClusterAlerts, known: ClusterFacts) -> DesiredObjects:
    found: list[dict[str, Any]] = []
    reason = trouble = ""
    if row.receivers:
        receivers, reason, trouble = _receivers(row, known.told)
        found += receivers
    if row.rules:
        found.append(_rules(row, known))
    return DesiredObjects(tuple(found), reason, trouble)


def _rules(row: ClusterAlerts, known: ClusterFacts) -> dict[str, Any]:
    own = row.cluster.kind == IN_CLUSTER
    return bodies.build_rules(known.rules, _place(row), routed=row.receivers, with_console=own)


def _receivers(
    row: ClusterAlerts, told: AlertmanagerExport
) -> tuple[list[dict[str, Any]], str, str]:
    if not selectors.has_alertmanager(row.cluster.name):
        return [], "NoAlertmanager", _NO_ALERTMANAGER
    texts = _addresses(told.keys)
    missing = sorted(key for key, text in texts.items() if not text)
    if missing:
        text = f"{', '.join(missing)} cannot be read with the present encryption key."
        return [], "AddressUnreadable", f"{text} Give it anew under Receivers."
    secret = [bodies.build_address_secret(texts, _place(row))] if texts else []
    return [*secret, bodies.build_receivers(told.spec(), _place(row))], "", ""


def _addresses(keys: tuple[str, ...]) -> dict[str, str]:
    known = {
        alertmanager_config.url_key(name): url
        for name, url in deliveries.receiver_addresses().items()
    }
    known[alertmanager_config.MAIL_KEY] = settings.MAIL.password
    return {key: known.get(key, "") for key in keys}


def _place(row: ClusterAlerts) -> bodies.Placement:
    namespace = row.namespace or row.cluster.namespace
    return bodies.Placement(settings.EMBERLINE.install_id, namespace, row.labels)
