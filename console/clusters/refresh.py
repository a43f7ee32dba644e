"""Refresh the status of one cluster: claim, query, write, release.

A failed query keeps the last inventory and stores an actionable reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.audit.record import record
from console.claims import take_claim
from console.clusters.choices import ClusterPhase, ClusterReason, Reach
from console.clusters.models import Cluster, ClusterStatus
from console.core import uses
from console.core.counters import increment
from console.provisioners.base import ProvisionError
from console.provisioners.kubernetes.api.access import IN_CLUSTER, own_namespace
from console.provisioners.kubernetes.api.reader import QueryFailed, Reader
from console.provisioners.kubernetes.discovery import rights
from console.provisioners.kubernetes.discovery.rights import GrantedRights
from console.provisioners.kubernetes.discovery.survey import ClusterSurvey
from console.vault import encryption

log = logging.getLogger(__name__)

CLAIM_S = 75.0  # exceeds the reader's budget plus one last call
AFTER_CRASH_S = 60.0
_NAMED_RIGHTS = 4  # missing rights in the summary line; the page lists all
PATIENCE_S = 5.0
AGAIN_NOW_S = 1.0
_WAIT_S = 0.2
AGAIN_S = {ClusterPhase.READY: 60.0, ClusterPhase.DEGRADED: 30.0, ClusterPhase.FAILED: 20.0}


@dataclass(frozen=True, slots=True)
class ClusterObservation:
    phase: ClusterPhase
    reason: str
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def ensure_in_cluster() -> None:
    """Create the row of the cluster the console runs in; concurrent callers create it once."""
    if Cluster.objects.filter(name=IN_CLUSTER).exists():
        return
    fields = {"kind": IN_CLUSTER, "namespace": own_namespace(), "reach": Reach.PODS}
    try:
        with transaction.atomic():
            cluster = Cluster.objects.create(name=IN_CLUSTER, **fields)
            ClusterStatus.objects.create(cluster=cluster)
            values = {key: str(value) for key, value in fields.items()}
            record(None, "create", f"cluster/{IN_CLUSTER}", values)
    except IntegrityError:
        return


def refresh(cluster_id: str) -> ClusterObservation | None:
    """Refresh once; return None if another process holds the claim."""
    held = take_claim(ClusterStatus, cluster_id, ttl_s=CLAIM_S)
    if held is None:
        return None
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        return None
    try:
        observation = survey_cluster(
            cluster, uses.of("followed", cluster.name), uses.of("rights", cluster.name)
        )
    except Exception:
        # Delay the next attempt, so that one bad row cannot occupy a worker.
        held.release(AFTER_CRASH_S)
        raise
    increment("cluster_looks", outcome=observation.reason)
    held.write(
        observed_generation=cluster.generation,
        phase=observation.phase,
        reason=observation.reason,
        message=observation.message,
        **observation.facts,
    )
    held.release(AGAIN_S[observation.phase])
    return observation


def refresh_now(cluster_id: str) -> None:
    """Wait for a query that begins after this call.

    While required rights are missing it repeats for `PATIENCE_S`: a new Role reaches the API
    server's authorizer with a delay.
    """
    until, patient_until = time.monotonic() + CLAIM_S, 0.0
    while time.monotonic() < until:
        observation = refresh(cluster_id)
        if observation is None:
            if not Cluster.objects.filter(pk=cluster_id).exists():
                return
            time.sleep(_WAIT_S)
            continue
        missing = observation.reason == ClusterReason.RIGHTS_MISSING
        patient_until = patient_until or time.monotonic() + PATIENCE_S
        if not missing or time.monotonic() > patient_until:
            outcome = "still_missing" if missing else "answered"
            increment("cluster_checks", outcome=outcome)
            return
        time.sleep(AGAIN_NOW_S)
    increment("cluster_checks", outcome="busy")


def survey_cluster(
    cluster: Cluster, followed: Collection[str] = (), parts: Collection[str] = ()
) -> ClusterObservation:
    """Query the cluster; cluster errors become part of the result.

    `followed`: namespaces with followed objects; `parts`: additionally required groups of rights.
    """
    ends: dict[str, Any] = {}
    try:
        access = cluster.access()
        ends = {"login_ends_at": _moment(access.ends_at())}
        reader = Reader(access)
        survey = ClusterSurvey(reader).run()
        granted = rights.check_rights(reader, cluster.namespace, survey, followed, parts)
    except encryption.Unreadable as error:
        return ClusterObservation(ClusterPhase.FAILED, ClusterReason.KEY_MISSING, str(error))
    except ProvisionError as error:
        return ClusterObservation(ClusterPhase.FAILED, error.reason, error.message, ends)
    except QueryFailed as error:
        return ClusterObservation(
            ClusterPhase.FAILED, ClusterReason.UNCLEAR, f"Response: {error}.", ends
        )
    fields = {
        "server_version": survey.server_version,
        "inventory": survey.to_json(),
        "rights": asdict(granted),
        "seen_at": timezone.now(),
        **ends,
    }
    if granted.enough:
        return ClusterObservation(ClusterPhase.READY, ClusterReason.ANSWERS, "", fields)
    return ClusterObservation(
        ClusterPhase.DEGRADED, ClusterReason.RIGHTS_MISSING, _missing_rights(granted), fields
    )


def query_own_cluster(namespace: str) -> ClusterObservation:
    """Query the cluster this console runs in, without cached values."""
    return survey_cluster(Cluster(name=IN_CLUSTER, kind=IN_CLUSTER, namespace=namespace))


def _moment(epoch_s: float | None) -> datetime | None:
    return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC)


def _missing_rights(granted: GrantedRights) -> str:
    names = [right.title for right in granted.needed]
    more = f" and {len(names) - _NAMED_RIGHTS} more" if len(names) > _NAMED_RIGHTS else ""
    return (
        f"Emberline lacks permissions in {granted.namespace}: "
        f"{', '.join(names[:_NAMED_RIGHTS])}{more}. Apply the Role shown on the "
        "cluster's page."
    )
