"""Cache tier reconciler: short passes from observed to desired state.

A pass never waits, and the claim prevents two passes on one tier. Failures are recorded on the row
and retried. Sole writer of CacheTierStatus and CacheNode.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from cachetier import node_admin
from cachetier.models import CacheNode, CacheTier, CacheTierStatus
from cachetier.node_admin import node_list_file, password_file
from cachetier.signals import tier_changed
from cachetier.tier import node_stats
from cachetier.tier.lifecycle import TierPhase, TierVerdict, judge_tier
from cachetier.tier.node_spec import (
    ADMIN_PORT,
    RESP_PORT,
    NodeFacts,
    node_spec,
    nodes_url,
    to_pods,
    workload_name,
)
from console.audit.record import diff, record
from console.claims import Claim, take_claim
from console.clusters import selectors as clusters
from console.provisioners.base import (
    Observation,
    PermanentError,
    Provisioner,
    Ref,
    ReplicaObservation,
    ReplicaState,
    TemporaryError,
    WorkloadSpec,
)

log = logging.getLogger(__name__)

CLAIM_S = 30
# Seconds until the next pass: during a change, and in steady state (also the age of the statistics
# on the Cache page).
CHANGE_INTERVAL_S = 1.0
STEADY_INTERVAL_S = 5.0
ANNOUNCED_INTERVAL_S = 15.0
"""Interval of the nodes' figures where changes of their processes are announced."""
IDLE_INTERVAL_S = 30.0
"""The same while the figures do not change; a node that hangs is noticed within it."""
RETRY_INTERVAL_S = 30.0


def reconcile(tier_id: str) -> None:
    """Run one pass unless another process holds the claim."""
    held = take_claim(CacheTierStatus, tier_id, CLAIM_S)
    if held is None:
        return
    due_in_s = RETRY_INTERVAL_S  # delays the retry if the pass crashes
    try:
        due_in_s = _run_pass(held)
    except TemporaryError as error:
        due_in_s = error.delay_s
        _record_failure(held, error.reason, error.message)
    except PermanentError as error:
        _record_failure(held, error.reason, error.message, TierPhase.FAILED)
    finally:
        held.release(due_in_s)


def _run_pass(held: Claim) -> float:
    tiers = CacheTier.objects.select_related("status").prefetch_related("nodes")
    tier = tiers.get(pk=str(held.pk))
    provisioner = clusters.provisioner(tier.cluster, tier.namespace)
    if tier.deleted_at is not None:
        return _remove_workload(held, tier, provisioner)
    leaving = _count_leaving_nodes(tier, provisioner)
    kept_spec = replace(tier.spec, node_count=max(tier.node_count, leaving))
    spec = _nodes(NodeFacts(tier.name, kept_spec, password_file()))
    ref = provisioner.apply(spec)
    observation = provisioner.observe(ref)
    stats = {
        node.name: node_stats.fetch_stats(node.urls[ADMIN_PORT]) for node in observation.ready()
    }
    verdict = judge_tier(
        observation,
        spec.spec_hash,
        wanted=tier.node_count,
        was_ready=bool(tier.status.url),
        deleting=False,
    )
    if not _write_status(held, tier, observation, verdict, stats):
        log.info("Cache tier %s: lost the reconcile claim; discarding the result", tier.name)
    if verdict.phase is not TierPhase.READY or leaving:
        return CHANGE_INTERVAL_S
    if not provisioner.announces:
        return STEADY_INTERVAL_S
    before = {node.name: node_stats.NodeStats.of_json(node.stats) for node in tier.nodes.all()}
    return IDLE_INTERVAL_S if stats == before else ANNOUNCED_INTERVAL_S


def _nodes(facts: NodeFacts) -> WorkloadSpec:
    if facts.spec.cluster:
        return to_pods(node_spec(facts), facts, settings.EMBERLINE.engine_image)
    return node_spec(facts, engine_path=settings.EMBERLINE.engine_path)


def _node_list_url(tier: CacheTier) -> str:
    """Return the node list URL: a local file, or a DNS name on a cluster."""
    if not tier.cluster:
        return node_admin.node_list_url(node_list_file(tier.name), tier.copies)
    node_facts = NodeFacts(tier.name, tier.spec, password_file())
    return nodes_url(node_facts, clusters.namespace(tier.cluster, tier.namespace))


def _count_leaving_nodes(tier: CacheTier, provisioner: Provisioner) -> int:
    """Return how many nodes to keep for now while a surplus node hands over its values, else 0.

    The node list already excludes the surplus node, so it receives no new values.
    """
    if not tier.nodes.filter(index__gte=tier.node_count, state=ReplicaState.READY).exists():
        return 0
    ready = provisioner.observe(Ref(provisioner.name, workload_name(tier.name))).ready()
    staying = [replica for replica in ready if replica.index < tier.node_count]
    heirs = (
        [urlsplit(replica.urls[RESP_PORT]).netloc for replica in staying]  # as DNS lists them
        if tier.cluster
        else node_admin.node_list_lines(staying, RESP_PORT, tier.node_count)
    )
    going = [replica for replica in ready if replica.index >= tier.node_count]
    handing = [
        replica.index for replica in going if node_admin.hand_over(replica.urls[ADMIN_PORT], heirs)
    ]
    return max(handing, default=-1) + 1


def _remove_workload(held: Claim, tier: CacheTier, provisioner: Provisioner) -> float:
    ref = Ref(provisioner.name, workload_name(tier.name))
    provisioner.delete(ref)
    observation = provisioner.observe(ref)
    if not observation.exists:
        with transaction.atomic():
            CacheTier.objects.select_for_update(no_key=True).get(pk=tier.pk)
            if held.write(phase=TierPhase.DELETING):
                tier.delete()
                node_list_file(tier.name).unlink(missing_ok=True)
        return CHANGE_INTERVAL_S
    verdict = judge_tier(observation, "", wanted=0, was_ready=False, deleting=True)
    held.write(**asdict(verdict), observed_generation=tier.generation, url="")
    return CHANGE_INTERVAL_S


def _write_status(
    held: Claim,
    tier: CacheTier,
    seen: Observation,
    verdict: TierVerdict,
    stats: dict[str, node_stats.NodeStats | None],
) -> bool:
    """Write status and nodes in one transaction; return False if the claim is lost."""
    before = tier.status
    fields: dict[str, Any] = asdict(verdict) | {"observed_generation": tier.generation}
    path = node_list_file(tier.name)
    listed: list[str] = []
    if not tier.cluster:
        names = node_admin.read_listed_names(path)
        listed = node_admin.node_list_lines(seen.replicas, RESP_PORT, tier.node_count, names)
    if seen.ready():
        fields["url"] = _node_list_url(tier)
    if verdict.phase != before.phase:
        fields["phase_since"] = timezone.now()
    changed = verdict.phase != before.phase or fields.get("url", before.url) != before.url
    with transaction.atomic():
        if not held.write(**fields):
            return False
        if listed:  # written under the claim: a stale pass cannot overwrite a newer one
            node_admin.write_node_list(path, listed)
        nodes = {node.index: node for node in tier.nodes.all()}
        for replica in seen.replicas:
            _write_node(tier, nodes.get(replica.index), replica, stats.get(replica.name))
        tier.nodes.exclude(index__in=[replica.index for replica in seen.replicas]).delete()
        if changed:
            name = tier.name
            transaction.on_commit(
                lambda: tier_changed.send_robust(sender=CacheTier, tier=name), robust=True
            )
    return True


def _write_node(
    tier: CacheTier,
    before: CacheNode | None,
    replica: ReplicaObservation,
    stats: node_stats.NodeStats | None,
) -> None:
    """Write one node row, within the claim's transaction, so that a restart is reported once."""
    now = timezone.now()
    started_at = datetime.fromtimestamp(replica.started_at, UTC) if replica.started_at else None
    fields: dict[str, Any] = {
        "name": replica.name,
        "state": replica.state.value,
        "url": to_redis_url(replica.urls.get(RESP_PORT, "")),
        "admin_url": replica.urls.get(ADMIN_PORT, ""),
        "pid": replica.pid,
        "started_at": started_at,
        "restarts": replica.restarts,
        "message": replica.message,
        "seen_at": now,
    }
    if stats is not None:
        fields |= {"stats": stats.as_json(), "stats_at": now}
    if before is not None and replica.restarts > before.restarts:
        if replica.state is ReplicaState.READY:
            fields["last_restart_at"] = started_at
            _log_restart(before, replica)
        else:
            del fields["restarts"]  # process is down; counted once it is back
    CacheNode.objects.update_or_create(tier=tier, index=replica.index, defaults=fields)


def _log_restart(before: CacheNode, replica: ReplicaObservation) -> None:
    """Record an unplanned restart (the provisioner counts no others) and the loss of memory."""
    changes = diff(
        {"pid": before.pid or None, "restarts": before.restarts},
        {"pid": replica.pid or None, "restarts": replica.restarts},
    )
    lost = before.stats.get("used_bytes")
    changes |= {"held_bytes": [lost, 0]} if lost else {}
    record(None, "restart", f"cache-node/{replica.name}", changes)
    log.warning("Cache node %s crashed and restarted; its memory contents are lost", replica.name)


def to_redis_url(observed: str) -> str:
    """Convert the provisioner's http://HOST:PORT to redis://HOST:PORT/0."""
    if not observed:
        return ""
    return f"redis://{observed.removeprefix('http://').rstrip('/')}/0"


def _record_failure(held: Claim, reason: str, message: str, phase: str | None = None) -> None:
    fields: dict[str, Any] = {"reason": reason, "message": message}
    if phase is not None:
        fields |= {"phase": phase, "phase_since": timezone.now()}
    held.write(**fields)
    log.warning("Cache tier %s: %s: %s", held.pk, reason, message)
