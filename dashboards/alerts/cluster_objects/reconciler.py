"""Reconcile a cluster's alert objects: claim, observe, apply, remove, release.

An object is recorded in the row before it is created. Objects of other owners are neither
overwritten nor removed; foreign changes are reverted and counted; every outcome has a reason.
Objects stay as they are while the cluster or the console is down.

Desired objects follow from database rows without a cluster request. Receivers are handed to a
cluster only where its Alertmanager is configured: otherwise the console would send the same alerts
again. Changes are detected without decrypting a secret.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from console.audit.record import record
from console.claims import Claim, due, take_claim
from console.clusters import selectors as clusters
from console.clusters.choices import ClusterPhase
from console.core.counters import increment
from console.provisioners.base import PermanentError, ProvisionError
from console.provisioners.kubernetes.api.access import IN_CLUSTER
from console.provisioners.kubernetes.api.capabilities import CAPABILITIES, PROMETHEUS_OPERATOR
from dashboards.alerts.alertmanager import selectors as notify
from dashboards.alerts.alertmanager.config.document import MAIL_KEY, AlertmanagerConfig, secret_key
from dashboards.alerts.cluster_objects import selectors
from dashboards.alerts.cluster_objects.models import ClusterAlerts, ClusterAlertsStatus
from dashboards.alerts.cluster_objects.objects import manifests as bodies
from dashboards.alerts.fields import check_object_labels
from dashboards.alerts.rules.rule_file import Settings
from dashboards.alerts.settings import selectors as alerting

Item = tuple[str, str, str]  # kind, namespace, name
log = logging.getLogger(__name__)

CLAIM_S = 75.0  # task time limit
AFTER_CRASH_S = 60.0
# A name of the past: another salt would reconcile every cluster with receivers once more.
_MAIL_SALT = "dashboards.alert_objects.wanted"
SOON_S = 2.0  # while a deletion is in progress
AGAIN_S = {ClusterPhase.READY: 60.0, ClusterPhase.DEGRADED: 60.0, ClusterPhase.FAILED: 30.0}

_NO_ALERTMANAGER = (
    "No Alertmanager is configured for the cluster: the console sends its notifications, so "
    "receivers are not synced. Set its address in the metrics source."
)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Inputs shared by all clusters. `generations`: of the receivers, since addresses are
    secret."""

    rules: Settings
    export: AlertmanagerConfig
    generations: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DesiredObjects:
    """Alert objects that a cluster should have. `trouble`: why some objects are missing, with its
    `reason`; the others are kept anyway.
    """

    bodies: tuple[dict[str, Any], ...]
    reason: str = ""
    trouble: str = ""


@dataclass(slots=True)
class ReconcileResult:
    """Outcome of a pass. `facts`: observed status fields; `soon`: repeat after `SOON_S`."""

    phase: str = ClusterPhase.READY
    reason: str = "Kept"
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    soon: bool = False


def has_work() -> bool:
    """Return whether a row exists or may be created."""
    return bool(settings.EMBERLINE.alert_objects) or ClusterAlertsStatus.objects.exists()


def find_due() -> list[str]:
    """Return the rows that are due, or whose desired objects have changed since the latest pass."""
    pks = {str(pk) for pk in due(ClusterAlertsStatus, timezone.now())}
    rows = [row for row in selectors.desired_rows() if row.on and str(row.pk) not in pks]
    common = load_facts() if rows else None
    for row in rows:
        if common is not None and desired_digest(row, common) != row.status.tried:
            pks.add(str(row.pk))
    return sorted(pks)


def ensure_in_cluster() -> None:
    """Create the row of the console's own cluster from the installer's settings, once.

    An existing row is never changed. Of concurrent callers, one creates the row.
    """
    requested = settings.EMBERLINE.alert_objects
    row = clusters.get(IN_CLUSTER)
    if not requested or row is None or ClusterAlerts.objects.filter(cluster=row).exists():
        return
    labels = dict(settings.EMBERLINE.alert_object_labels)
    check_object_labels(labels)
    enabled = {name: name in requested for name in ("rules", "receivers")}
    try:
        with transaction.atomic():
            made = ClusterAlerts(cluster=row, labels=labels, **enabled)
            made.save(force_insert=True)
            ClusterAlertsStatus.objects.create(alerts=made)
            record(
                None, "alert-objects.update", f"cluster/{IN_CLUSTER}", {**enabled, "labels": labels}
            )
    except IntegrityError:
        return


def reconcile(alerts_id: str) -> None:
    """Run one pass unless another process holds the claim."""
    held = take_claim(ClusterAlertsStatus, alerts_id, ttl_s=CLAIM_S)
    if held is None:
        return
    row = selectors.desired_rows().filter(cluster=UUID(alerts_id)).first()
    if row is None:
        return
    try:
        reconcile_result = _pass(row, held)
    except Exception:
        # Deferred, so that one bad row cannot occupy a worker.
        held.release(AFTER_CRASH_S)
        raise
    increment("alert_object_passes", outcome=reconcile_result.reason)
    held.write(
        observed_generation=row.generation,
        phase=reconcile_result.phase,
        reason=reconcile_result.reason,
        message=reconcile_result.message,
        **reconcile_result.facts,
    )
    over = not row.on and not reconcile_result.facts.get("there", row.status.there)
    held.release(
        None
        if over
        else SOON_S
        if reconcile_result.soon
        else AGAIN_S[ClusterPhase(reconcile_result.phase)]
    )


def _pass(row: ClusterAlerts, held: Claim) -> ReconcileResult:
    reconcile_result, common = ReconcileResult(), load_facts()
    reconcile_result.facts["tried"] = desired_digest(row, common)
    try:
        _bring(row, build_desired(row, common), held, reconcile_result)
    except ProvisionError as error:
        reconcile_result.phase, reconcile_result.reason, reconcile_result.message = (
            ClusterPhase.FAILED,
            error.reason,
            error.message,
        )
        reconcile_result.soon = error.reason == "StillStopping"
    return reconcile_result


def _bring(row: ClusterAlerts, want: DesiredObjects, held: Claim, seen: ReconcileResult) -> None:
    """Raise `ProvisionError` if the cluster or its credentials reject a request."""
    # Imported lazily: it loads the Kubernetes client, which a single-machine console never needs.
    from dashboards.alerts.cluster_objects.objects.cluster_client import Objects

    status, name = row.status, row.cluster.name
    access, _ = clusters.access(name)
    if want.bodies:
        _expect_operator(name)
    before = {(kind, namespace, item) for kind, namespace, item in status.there}
    mine = {_item(body) for body in want.bodies}
    _note(held, seen, before | mine)
    objects = Objects(access, settings.EMBERLINE.install_id)
    same = status.phase != ClusterPhase.FAILED and status.tried == seen.facts["tried"]
    changes = [
        change
        for body in want.bodies
        for change in objects.put(body, known=same and _item(body) in before)
    ]
    _corrected(row, seen, changes)
    left = objects.remove(before - mine)
    _note(held, seen, mine | left)
    seen.soon = bool(left)
    if want.bodies:
        seen.facts["kept_at"] = timezone.now()
    else:
        seen.reason = "Off"
    if want.trouble:
        seen.phase, seen.reason, seen.message = ClusterPhase.DEGRADED, want.reason, want.trouble
    elif row.rules and (twins := objects.twins(row.namespace or row.cluster.namespace)):
        seen.phase, seen.reason = ClusterPhase.DEGRADED, "RulesTwice"
        seen.message = (
            f"{', '.join(twins)} has rules of the same groups: alerts are duplicated. "
            "Remove it, or disable the sync (chart: monitoring.liveRules)."
        )


def _item(body: dict[str, Any]) -> Item:
    metadata = body["metadata"]
    return str(body["kind"]), str(metadata["namespace"]), str(metadata["name"])


def _note(held: Claim, seen: ReconcileResult, there: set[Item]) -> None:
    seen.facts["there"] = sorted(list(item) for item in there)
    held.write(there=seen.facts["there"])


def _corrected(row: ClusterAlerts, seen: ReconcileResult, changes: list[str]) -> None:
    if not changes:
        return
    increment("alert_objects_corrected", cluster=row.cluster.name)
    log.warning(
        "reverted foreign changes to alert objects in cluster %s: %s",
        row.cluster.name,
        "; ".join(changes),
    )
    seen.facts |= {
        "corrected": row.status.corrected + 1,
        "corrected_at": timezone.now(),
        "correction": "; ".join(changes)[:500],
    }


def _expect_operator(cluster: str) -> None:
    """Raise unless the last capability check found the operator; an unchecked cluster passes."""
    capabilities = clusters.capabilities(cluster)
    if capabilities is not None and PROMETHEUS_OPERATOR not in capabilities:
        why = clusters.missing_reason(cluster, PROMETHEUS_OPERATOR)
        capability = CAPABILITIES[PROMETHEUS_OPERATOR]
        text = f"The cluster has no {capability.label}, which reads the objects. {why}"
        raise PermanentError("MissingCapability", text.strip())


def load_facts() -> ClusterFacts:
    generations = tuple(notify.receivers().values_list("name", "generation"))
    return ClusterFacts(alerting.settings(), notify.config(), generations)


def desired_digest(row: ClusterAlerts, known: ClusterFacts) -> str:
    objects = [_rules(row, known)] if row.rules else []
    if not row.receivers:
        return bodies.objects_digest(objects, row.generation)
    password = salted_hmac(_MAIL_SALT, settings.MAIL.password).hexdigest()
    content = (known.export.spec(), known.generations, password)
    return bodies.objects_digest(
        objects, row.generation, selectors.has_alertmanager(row.cluster.name), *content
    )


def build_desired(row: ClusterAlerts, known: ClusterFacts) -> DesiredObjects:
    desired = _receivers(row, known.export) if row.receivers else DesiredObjects(())
    if row.rules:
        return replace(desired, bodies=(*desired.bodies, _rules(row, known)))
    return desired


def _rules(row: ClusterAlerts, known: ClusterFacts) -> dict[str, Any]:
    own = row.cluster.kind == IN_CLUSTER
    return bodies.build_rules(known.rules, _place(row), routed=row.receivers, with_console=own)


def _receivers(row: ClusterAlerts, export: AlertmanagerConfig) -> DesiredObjects:
    if not selectors.has_alertmanager(row.cluster.name):
        return DesiredObjects((), "NoAlertmanager", _NO_ALERTMANAGER)
    texts = _addresses(export.keys)
    missing = sorted(key for key, text in texts.items() if not text)
    if missing:
        text = f"{', '.join(missing)} cannot be decrypted with the current encryption key."
        return DesiredObjects((), "AddressUnreadable", f"{text} Enter it again under Receivers.")
    secret = [bodies.build_address_secret(texts, _place(row))] if texts else []
    return DesiredObjects((*secret, bodies.build_receivers(export.spec(), _place(row))))


def _addresses(keys: tuple[str, ...]) -> dict[str, str]:
    stored_secrets = {secret_key(*where): text for where, text in notify.stored_secrets().items()}
    stored_secrets[MAIL_KEY] = settings.MAIL.password
    return {key: stored_secrets.get(key, "") for key in keys}


def _place(row: ClusterAlerts) -> bodies.Placement:
    namespace = row.namespace or row.cluster.namespace
    return bodies.Placement(settings.EMBERLINE.install_id, namespace, row.labels)
