"""Tier lifecycle: actions, reconciler, and state read by other apps."""

from __future__ import annotations

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.utils import timezone

from cachetier import actions, reconciler, selectors, tasks
from cachetier.models import CacheNode, CacheTier, CacheTierStatus
from cachetier.node_admin import password_file
from cachetier.signals import tier_changed
from cachetier.tier import node_stats
from cachetier.tier.spec import Refused, SpareCapacity
from console.accounts.models import User
from console.audit.models import AuditEvent
from console.claims import due, take_claim
from console.core import uses
from console.provisioners.base import PermanentError, Ref, TemporaryError, WorkloadSpec
from console.provisioners.fake import FakeProvisioner

pytestmark = pytest.mark.django_db
MIB = 1024**2


@pytest.fixture(autouse=True)
def _quiet_nodes(monkeypatch: pytest.MonkeyPatch, paper: FakeProvisioner) -> None:
    """Simulated nodes without responses; here they return a status."""
    numbers = node_stats.NodeStats(used_bytes=256.0 * MIB, capacity_bytes=1024.0 * MIB, hits=3)
    monkeypatch.setattr("cachetier.tier.node_stats.fetch_stats", lambda _url: numbers)


@pytest.fixture
def operator() -> User:
    return User.objects.create_user("olga", password="x", role="operator")


def passes(tier: CacheTier, number: int = 2) -> CacheTier:
    for _ in range(number):
        reconciler.reconcile(str(tier.pk))
    return CacheTier.objects.select_related("status").get(pk=tier.pk)


def test_default_tier_is_created_once_and_becomes_ready() -> None:
    tier = actions.ensure_default_tier()
    assert actions.ensure_default_tier().pk == tier.pk
    assert (
        AuditEvent.objects.filter(target="cache-tier/default", verb="cache-tier.create").count()
        == 1
    )
    assert not selectors.attachment().ready

    tier = passes(tier)

    assert tier.status.phase == "Ready"
    found = selectors.attachment()
    assert found.ready
    assert found.url.startswith("file:///")
    (listed,) = Path(found.url.removeprefix("file://")).read_text().splitlines()
    assert listed.startswith("redis://127.0.0.1:")
    assert listed.endswith("/0?name=cache-default-0")
    node = CacheNode.objects.get()
    assert (node.name, node.state) == ("cache-default-0", "ready")
    assert selectors.numbers(selectors.get_tier("default")).fill_percent == 25


@pytest.mark.django_db(transaction=True)
def test_two_concurrent_callers_get_one_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked and found nothing before either creates it."""
    meet = threading.Barrier(2, timeout=60)
    real = selectors.spare_capacity

    def together() -> SpareCapacity:
        meet.wait()
        return real()

    monkeypatch.setattr("cachetier.selectors.spare_capacity", together)

    def caller() -> object:
        try:
            return actions.ensure_default_tier().pk
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        first, second = (call.result(60) for call in [pool.submit(caller) for _ in range(2)])
    assert first == second == CacheTier.objects.get().pk
    assert CacheTierStatus.objects.count() == 1


def test_password_is_private_and_never_in_the_spec() -> None:
    path = password_file()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = path.read_text()
    assert len(first) > 30
    assert password_file().read_text() == first
    assert selectors.attachment().password_file == str(path)


def test_policy_change_restarts_the_node_with_a_notice(operator: User) -> None:
    tier = passes(actions.ensure_default_tier())
    actions.change(operator, "default", {"policy": "lru"})
    assert not selectors.attachment().ready, "what is seen belongs to the old settings"

    tier = passes(tier, 1)

    assert tier.status.phase == "Degraded"
    assert tier.status.reason in ("ReplacingNodes", "StartingNodes")
    found = selectors.attachment()
    assert found.url, "workers keep the address while the node restarts"
    assert passes(tier).status.phase == "Ready"
    event = AuditEvent.objects.get(verb="cache-tier.update")
    assert event.changes["policy"] == ["arc", "lru"]
    assert event.actor_name == "olga"


@pytest.mark.parametrize(
    ("value", "code"),
    [(1, "min_value"), (2**60, "max_value"), ("much", "type"), (True, "type"), (0.5, "type")],
)
def test_invalid_size_names_field_value_and_remedy(operator: User, value: Any, code: str) -> None:
    tier = actions.ensure_default_tier()
    with pytest.raises(Refused) as caught:
        actions.change(operator, "default", {"memory_bytes": value})
    (problem,) = caught.value.errors
    assert (problem.field, problem.value, problem.code) == ("memory_bytes", value, code)
    assert "bytes" in problem.remedy
    tier.refresh_from_db()
    assert tier.generation == 1


def test_viewer_changes_nothing() -> None:
    viewer = User.objects.create_user("vic", password="x", role="viewer")
    actions.ensure_default_tier()
    with pytest.raises(PermissionDenied):
        actions.change(viewer, "default", {"memory_bytes": 512 * MIB})
    with pytest.raises(PermissionDenied):
        actions.delete(viewer, "default")


def test_used_tier_is_not_deleted(operator: User) -> None:
    actions.ensure_default_tier()

    def used() -> dict[str, list[str]]:
        return {"default": ["endpoint demo"]}

    uses.register("cache-tier", used)
    try:
        with pytest.raises(Refused, match="endpoint demo") as caught:
            actions.delete(operator, "default")
    finally:
        uses.unregister("cache-tier", used)
    assert caught.value.status_code == 409
    assert CacheTier.objects.get().deleted_at is None


def test_deletion_leaves_nothing_and_the_next_use_recreates_the_tier(
    operator: User, paper: FakeProvisioner
) -> None:
    tier = passes(actions.ensure_default_tier())
    actions.delete(operator, "default")
    assert selectors.attachment().url == ""
    passes_left = 4
    while CacheTier.objects.exists() and passes_left:
        reconciler.reconcile(str(tier.pk))
        passes_left -= 1
    assert not CacheTier.objects.exists()
    assert not CacheNode.objects.exists()
    assert not paper.observe(Ref("fake", "cache-default")).exists
    assert actions.ensure_default_tier().pk != tier.pk


def test_dead_node_degrades_the_tier_and_recovers(paper: FakeProvisioner) -> None:
    tier = passes(actions.ensure_default_tier())
    paper.crash(Ref("fake", "cache-default"), 0)
    tier = passes(tier, 1)
    assert tier.status.phase == "Degraded"
    assert tier.status.reason == "NodeRestarting"
    assert passes(tier, 3).status.phase == "Ready"
    assert CacheNode.objects.get().restarts == 1


def test_ready_tier_is_observed_rarely_where_changes_are_announced(
    paper: FakeProvisioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = passes(actions.ensure_default_tier())

    def due_in_s() -> float:
        passes(tier, 1)
        status = CacheTierStatus.objects.get(pk=tier.pk)
        assert status.due_at is not None
        return (status.due_at - status.updated_at).total_seconds()

    assert due_in_s() < reconciler.ANNOUNCED_INTERVAL_S - 1
    monkeypatch.setattr(FakeProvisioner, "announces", True)
    assert due_in_s() >= reconciler.IDLE_INTERVAL_S - 1
    used = node_stats.NodeStats(used_bytes=257.0 * MIB, curve=node_stats.Curve(1.0, 2.0, ((3, 4),)))
    monkeypatch.setattr("cachetier.tier.node_stats.fetch_stats", lambda _url: used)
    assert due_in_s() < reconciler.IDLE_INTERVAL_S - 1
    assert due_in_s() >= reconciler.IDLE_INTERVAL_S - 1, "nothing is looked up"
    paper.crash(Ref("fake", "cache-default"), 0)
    assert due_in_s() < reconciler.STEADY_INTERVAL_S


def restart_events() -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(verb="cache-node.restart").order_by("pk"))


def test_node_restart_is_reported_once_with_its_loss(
    paper: FakeProvisioner, caplog: pytest.LogCaptureFixture
) -> None:
    tier = passes(actions.ensure_default_tier())
    assert CacheNode.objects.get().last_restart_at is None
    paper.crash(Ref("fake", "cache-default"), 0)
    passes(tier, 1)
    assert restart_events() == [], "it is not back yet"
    assert CacheNode.objects.get().last_restart_at is None

    with caplog.at_level("WARNING"):
        passes(tier, 5)

    (event,) = restart_events()
    assert (event.actor_name, event.target) == ("system", "cache-node/cache-default-0")
    assert event.changes == {"restarts": [0, 1], "held_bytes": [256.0 * MIB, 0]}
    node = CacheNode.objects.get()
    assert node.last_restart_at == node.lost_at == node.started_at
    assert len([r for r in caplog.records if "its memory contents are lost" in r.getMessage()]) == 1

    paper.crash(Ref("fake", "cache-default"), 0)
    passes(tier, 5)
    assert [event.changes["restarts"] for event in restart_events()] == [[0, 1], [1, 2]]


def test_intended_restart_is_not_reported(operator: User, paper: FakeProvisioner) -> None:
    tier = passes(actions.ensure_default_tier())
    paper.crash(Ref("fake", "cache-default"), 0)
    passes(tier, 3)
    actions.change(operator, "default", {"policy": "lru"})
    assert passes(tier, 5).status.phase == "Ready"
    assert len(restart_events()) == 1
    node = CacheNode.objects.get()
    assert node.restarts == 0
    assert node.lost_at is None, "what it holds is of the process that began on purpose"


def test_pass_that_lost_its_claim_reports_no_restart(
    paper: FakeProvisioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process took over and applies it."""
    tier = passes(actions.ensure_default_tier())
    paper.crash(Ref("fake", "cache-default"), 0)
    passes(tier, 1)
    real = node_stats.fetch_stats

    def steal(url: str) -> Any:
        CacheTierStatus.objects.update(claim_token="somebody else")
        return real(url)

    with monkeypatch.context() as stolen:
        stolen.setattr("cachetier.tier.node_stats.fetch_stats", steal)
        passes(tier, 2)
    assert restart_events() == []
    CacheTierStatus.objects.update(claim_until=None)
    passes(tier, 2)
    assert len(restart_events()) == 1


def test_pass_without_a_claim_does_nothing(paper: FakeProvisioner) -> None:
    tier = actions.ensure_default_tier()
    held = take_claim(CacheTierStatus, tier.pk)
    assert held is not None
    reconciler.reconcile(str(tier.pk))
    assert not paper.observe(Ref("fake", "cache-default")).exists


def test_claim_lost_during_a_pass_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tier = passes(actions.ensure_default_tier(), 1)

    def steal(_url: str) -> None:
        CacheTierStatus.objects.update(claim_token="somebody else")

    monkeypatch.setattr("cachetier.tier.node_stats.fetch_stats", steal)
    tier = passes(tier, 1)
    assert tier.status.phase == "Provisioning"
    assert CacheNode.objects.get().state == "starting"


@pytest.mark.parametrize(
    ("error", "phase", "within_s"),
    [
        (TemporaryError("Busy", "Ports are scarce.", delay_s=3), "Pending", 4),
        (PermanentError("NoSuchBinary", "There is no engine."), "Failed", 31),
    ],
)
def test_provisioner_failure_is_reported_and_retried(
    monkeypatch: pytest.MonkeyPatch, error: Exception, phase: str, within_s: float
) -> None:
    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr(FakeProvisioner, "apply", refuse)
    tier = passes(actions.ensure_default_tier(), 1)
    assert tier.status.phase == phase
    assert tier.status.message == str(error)
    assert due(CacheTierStatus, timezone.now() + timedelta(seconds=within_s)) == [tier.pk]


def test_crashed_pass_is_not_repeated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> None:
        raise RuntimeError("a bug")

    tier = actions.ensure_default_tier()
    monkeypatch.setattr(FakeProvisioner, "apply", crash)
    with pytest.raises(RuntimeError):
        reconciler.reconcile(str(tier.pk))
    assert due(CacheTierStatus, timezone.now() + timedelta(seconds=10)) == []
    assert due(CacheTierStatus, timezone.now() + timedelta(seconds=31)) == [tier.pk]


def test_silent_node_keeps_its_last_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    tier = passes(actions.ensure_default_tier())
    monkeypatch.setattr("cachetier.tier.node_stats.fetch_stats", lambda _url: None)
    passes(tier, 1)
    numbers = selectors.numbers(selectors.get_tier("default"))
    assert numbers.fill_percent == 25
    assert numbers.evictions is None, "a number the node does not show is not zero"


def test_change_is_signalled_once(django_capture_on_commit_callbacks: Any) -> None:
    received: list[str] = []

    def listen(sender: Any, tier: str, **_: Any) -> None:
        received.append(tier)

    tier_changed.connect(listen)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            tier = passes(actions.ensure_default_tier(), 4)
    finally:
        tier_changed.disconnect(listen)
    assert tier.status.phase == "Ready"
    assert received == ["default", "default"], "Provisioning, then Ready; nothing while it lasts"


def test_sweep_reconciles_due_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    monkeypatch.setattr(tasks.reconcile_tier, "run", requests.append)
    tier = actions.ensure_default_tier()
    tasks.sweep()
    assert requests == [str(tier.pk)]
    held = take_claim(CacheTierStatus, tier.pk)
    assert held is not None
    requests.clear()
    tasks.sweep()
    assert requests == []


def test_targets_are_the_admin_ports_of_nodes() -> None:
    passes(actions.ensure_default_tier())
    (target,) = selectors.targets()
    assert (target.tier, target.name) == ("default", "cache-default-0")
    assert target.address.startswith("127.0.0.1:")
    assert Path(target.address).name == target.address


def test_cluster_tier_is_applied_there_and_published_by_name(
    operator: User, paper: FakeProvisioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []
    applied: list[WorkloadSpec] = []
    monkeypatch.setattr(
        paper, "apply", lambda spec, apply=paper.apply: (applied.append(spec), apply(spec))[1]
    )

    def provisioner(cluster: str, namespace: str) -> FakeProvisioner:
        requests.append((cluster, namespace))
        return paper

    monkeypatch.setattr("cachetier.selectors.clusters.names", lambda: ["prod"])
    monkeypatch.setattr(reconciler.clusters, "provisioner", provisioner)
    monkeypatch.setattr(reconciler.clusters, "namespace", lambda _cluster, wanted: wanted or "x")
    tier = actions.create(operator, "chat", {"cluster": "prod", "namespace": "llm"})

    tier = passes(tier)

    assert set(requests) == {("prod", "llm")}
    assert tier.status.phase == "Ready"
    assert tier.status.url == "redis://cache-chat-pods.llm.svc:6400?nodes=dns"
    assert selectors.attachment("chat").url == tier.status.url
    assert applied[0].pod is not None
    assert applied[0].pod.stable
