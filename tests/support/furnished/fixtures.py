"""Small console in which everything is named "demo", for tests that visit all URLs."""

from __future__ import annotations

import shutil
from datetime import date
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.utils import timezone

from cachetier import actions as tiers
from console.catalogue.instance_types import INSTANCE_TYPES
from console.clusters.models import Cluster, ClusterStatus
from console.people import team_actions
from console.people import token_actions as accounts
from dashboards.alerts.alertmanager import receivers
from dashboards.alerts.alertmanager.models import AlertRecord, Route
from dashboards.alerts.cluster_objects import actions as alert_objects
from dashboards.alerts.cluster_objects import reconciler as alert_keeping
from dashboards.boards.panels import FIRST
from dashboards.costs.actions import save_budget, save_tier_price
from dashboards.costs.formulas.price_terms import THIS_MACHINE
from dashboards.costs.models import Budget, CostDay
from dashboards.custom_boards.models import CustomBoard
from dashboards.models import Calibration
from dashboards.prometheus.sources import actions as sources
from endpoints import actions
from endpoints.keys import actions as keys_actions
from endpoints.keys import usage
from endpoints.runs import RunState
from tests.dashboards.benchmarks.test_views import made as finished_benchmark
from tests.support.endpoints.reconciler_harness import ReconcilerHarness
from tests.support.people import Cast, cast

VISITED = UUID("00000000-0000-0000-0000-000000000001")
"""Of the rows that `tests.support.urlwalk` opens."""
SPEC: dict[str, Any] = {
    "name": "demo",
    "model": "smollm2-135m-instruct",
    "engine": "simulated",
    "replicas": 2,
    "routing": {"enabled": True, "strategy": "prefixaware"},
    "resources": {"cpus": 0.1, "memory_gib": 0.5, "gpus": 0},
}


@pytest.fixture
def furnished(transactional_db: None) -> Cast:
    """Create users and one of each object that pages show."""
    shutil.rmtree(settings.EMBERLINE.secrets / "endpoints", ignore_errors=True)
    people = cast()
    endpoint = actions.create(people.alice, SPEC)
    ReconcilerHarness().until(endpoint, "Ready")
    actions.scale(people.alice, "demo", 3)
    ReconcilerHarness().until(endpoint, "Ready")
    terms = {"requests_per_minute": 60, "budget_tokens": 1000, "expires_in_days": 3}
    made = keys_actions.create(people.alice, "demo", {"name": "chat-app", **terms})
    counts = {"requests": 7, "errors": 1, "prompt_tokens": 900, "cached_tokens": 600}
    reported = {"instance": "r1", "keys": {str(made.key.pk): counts}}
    usage.add_report(endpoint, reported, timezone.now())
    group = {"name": "all chats", "endpoints": ["demo"]}
    keys_actions.save_group(people.alice, None, group)
    tiers.create(people.alice, "demo", {})
    INSTANCE_TYPES.save(people.ada, "demo", {"vcpus": 4, "memory_gib": 16})
    size = {"vcpus": 8, "memory_gib": 32, "price_usd_hour": 1.0, "price_date": "2026-11-01"}
    INSTANCE_TYPES.save(people.ada, THIS_MACHINE, size)
    Calibration.objects.create(
        endpoint=endpoint, settings_hash="h", state=RunState.DONE, seconds_per_token=0.001
    )
    budget = save_budget(people.ada, None, {"name": "demo", "whose": "all", "usd": 100})
    Budget.objects.filter(pk=budget.pk).update(id=VISITED)
    save_tier_price(people.ada, "demo", {"usd_hour": 0.5})
    CostDay.objects.create(
        endpoint_name="demo",
        day=date(2026, 11, 10),
        key="k",
        team="demo",
        tags={"app": "chat"},
        worker_s=7200.0,
        busy_s=3600.0,
        prompt=9e4,
        generated=2e4,
        requests=60,
        cached_l2=3e4,
        price=1.0,
        part=0.1,
        slope=0.001,
        tier="demo",
        tier_h=1.0,
        hours=2,
    )
    finished_benchmark(endpoint, id=VISITED)
    panels = [{"type": "panel", "board": FIRST, "panel": "ttft", "endpoint": "demo"}]
    CustomBoard.objects.create(id=VISITED, title="demo", user=people.ada, panels=panels)
    ClusterStatus.objects.create(cluster=Cluster.objects.create(name="demo", kind="in-cluster"))
    alert_objects.change(people.ada, "demo", {"rules": True, "labels": {"release": "demo"}})
    # the cluster does not exist: sets that status
    alert_keeping.reconcile(str(Cluster.objects.get().pk))
    away = {"url": "http://127.0.0.1:9", "auth": "bearer", "secret": "t", "cluster": "demo"}
    sources.add(people.ada, "demo", away)
    sources.test(people.ada, "demo")
    accounts.create_token(people.ada, "ci", "viewer", days=30)
    team_actions.create(people.ada, {"name": "demo", "namespaces": ["demo"]})
    team_actions.set_member(people.ada, "demo", "charlie", "operator")
    hook = {"name": "demo", "kind": "webhook", "url": "https://h.example/x", "everything": True}
    receivers.create(people.ada, hook)
    Route.objects.update(id=VISITED)
    now = timezone.now()
    AlertRecord.objects.create(
        fingerprint="f",
        rule="HighTTFT",
        endpoint="demo",
        severity="page",
        labels={"alertname": "HighTTFT", "endpoint": "demo", "severity": "page"},
        started_at=now,
        seen_at=now,
    )
    return people
