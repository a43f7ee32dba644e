"""Cache page and its REST: permissions, messages and query counts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from cachetier import actions, reconciler, selectors
from cachetier.models import CacheNode, CacheTier, CacheTierStatus
from cachetier.tier import node_stats
from console.accounts.models import User
from console.core import uses
from console.provisioners.base import Ref
from console.provisioners.fake import FakeProvisioner

pytestmark = pytest.mark.django_db
MIB = 1024**2


@pytest.fixture(autouse=True)
def _nodes(monkeypatch: pytest.MonkeyPatch, paper: FakeProvisioner) -> None:
    numbers = node_stats.NodeStats(
        used_bytes=256.0 * MIB, capacity_bytes=1024.0 * MIB, lookups=40, hits=30, evictions=0
    )
    monkeypatch.setattr("cachetier.tier.node_stats.fetch_stats", lambda _url: numbers)


def user(role: str) -> User:
    found = User.objects.filter(username=f"one-{role}").first()
    return found or User.objects.create_user(f"one-{role}", password="x", role=role)


def browser(role: str) -> Client:
    client = Client()
    client.force_login(user(role))
    return client


def program(role: str) -> APIClient:
    client = APIClient()
    client.force_authenticate(user(role))
    return client


def ready_tier() -> CacheTier:
    tier = actions.ensure_default_tier()
    for _ in range(2):
        reconciler.reconcile(str(tier.pk))
    return tier


def test_page_without_a_tier_states_when_one_is_created() -> None:
    page = browser("viewer").get("/cache/")
    assert page.status_code == 200
    assert "No cache tiers" in page.text
    assert "enables L2" in page.text


def test_page_shows_nodes_and_figures() -> None:
    ready_tier()
    text = browser("viewer").get("/cache/").text
    for shown in ("cache-default-0", "256 MiB", "25 % of 1 GiB", "75 % of 40", "redis://127.0.0.1"):
        assert shown in text
    assert 'href="/cache/new/"' not in text, "a viewer gets no button"


def test_htmx_gets_only_the_part() -> None:
    ready_tier()
    part = browser("viewer").get("/cache/", headers={"HX-Request": "true"})
    assert "cache-default-0" in part.text
    assert "<html" not in part.text


def test_page_states_the_loss_of_a_restarted_node(paper: FakeProvisioner) -> None:
    tier = ready_tier()
    assert "cached data lost" not in browser("viewer").get("/cache/").text
    paper.crash(Ref("fake", "cache-default"), 0)
    for _ in range(3):
        reconciler.reconcile(str(tier.pk))
    assert "</time>: cached data lost" in browser("viewer").get("/cache/").text
    (node,) = program("viewer").get("/api/v1/cache-tiers/default/").json()["nodes"]
    assert node["restarts"] == 1
    assert node["last_restart_at"] == node["started_at"]


def test_rebalancing_and_shares_are_shown() -> None:
    tier = ready_tier()
    assert "Rebalancing" not in browser("viewer").get("/cache/").text
    now = timezone.now()
    CacheNode.objects.update(started_at=now - timedelta(hours=1), stats={"blocks": 300.0})
    CacheNode.objects.create(
        tier=tier,
        name="cache-default-1",
        index=1,
        state="ready",
        started_at=now - timedelta(seconds=40),
        stats={"blocks": 100.0, "moved_in": 60.0},
    )
    CacheTier.objects.update(node_count=2)
    for path in ("/cache/", "/cache/default/"):
        text = browser("viewer").get(path).text
        for shown in (
            "75 %",
            "25 %",
            "300 blocks",
            "cache-default-1 joined",
            "(max/mean blocks): 1.50",
        ):
            assert shown in text, path
    one = program("viewer").get("/api/v1/cache-tiers/default/").json()
    assert [(n["blocks"], n["share"], n["moved_in"]) for n in one["nodes"]] == [
        (300, 0.75, None),
        (100, 0.25, 60),
    ]
    assert one["imbalance"] == 1.5
    assert (one["rebalancing"]["node"], one["rebalancing"]["reason"]) == (
        "cache-default-1",
        "NodeJoined",
    )
    CacheTier.objects.update(node_count=1)
    assert "cache-default-1 is leaving" in browser("viewer").get("/cache/").text


def test_unknown_figures_are_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachetier.tier.node_stats.fetch_stats", lambda _url: None)
    ready_tier()
    text = browser("viewer").get("/cache/").text
    assert "No statistics yet" in text
    assert "Unknown" in text


def test_operator_edits_a_tier_and_gets_errors() -> None:
    ready_tier()
    operator = browser("operator")
    done = operator.post("/cache/default/edit/", {"memory_bytes": "0.5"}, follow=True)
    assert "are being applied" in done.text
    assert CacheTier.objects.get().memory_bytes == 512 * MIB
    for typed in ("much", "0.001", "-1", "nan", "inf", "1e99"):
        refused = operator.post("/cache/default/edit/", {"memory_bytes": typed})
        assert refused.status_code == 400
        assert "was not changed" in refused.text
        assert f'value="{typed}"' in refused.text, "what was typed stays"
    assert CacheTier.objects.get().memory_bytes == 512 * MIB


def test_a_link_fills_in_a_size() -> None:
    actions.create(user("operator"), "default", {})
    page = browser("operator").get("/cache/default/edit/?memory_bytes=3&name=other&copies=")
    text = page.content.decode()
    assert 'name="memory_bytes" value="3"' in text
    assert "The link filled in a change; nothing is saved yet." in text
    assert CacheTier.objects.get().memory_bytes == 1024 * MIB


def test_viewer_cannot_edit() -> None:
    ready_tier()
    viewer = browser("viewer")
    for page in ("new", "default/edit", "default/delete", "default/flush"):
        assert viewer.post(f"/cache/{page}/", {"memory_bytes": "2"}).status_code == 403
    assert program("viewer").post("/api/v1/cache-tiers/", {"name": "chat"}).status_code == 403
    flush = {"namespace": ""}
    assert program("viewer").post("/api/v1/cache-tiers/default/flush/", flush).status_code == 403
    assert program("viewer").patch("/api/v1/cache-tiers/default/", {}).status_code == 403
    assert CacheTier.objects.get().generation == 1


def test_number_of_queries_is_constant() -> None:
    ready_tier()
    client, reader = browser("viewer"), program("viewer")
    client.get("/cache/")
    with CaptureQueriesContext(connection) as few:
        client.get("/cache/")
        reader.get("/api/v1/cache-tiers/")
    for number in range(8):
        tier = CacheTier.objects.create(name=f"more-{number}")
        CacheTierStatus.objects.create(tier=tier)
        CacheNode.objects.create(tier=tier, name=f"n{number}", index=0, state="ready")
    with CaptureQueriesContext(connection) as many:
        client.get("/cache/")
        reader.get("/api/v1/cache-tiers/")
    assert len(many) == len(few)


def test_rest_lists_reads_and_resizes() -> None:
    ready_tier()
    client = program("operator")
    listed = client.get("/api/v1/cache-tiers/").json()
    assert len(listed["results"]) == 1
    one = client.get("/api/v1/cache-tiers/default/").json()
    assert one == listed["results"][0]
    assert (one["phase"], one["usage"]["hits"]) == ("Ready", 30)
    assert one["nodes"][0]["name"] == "cache-default-0"

    changed = client.patch("/api/v1/cache-tiers/default/", {"memory_bytes": 512 * MIB})
    assert changed.status_code == 200
    assert changed.json()["memory_bytes"] == 512 * MIB


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"memory_bytes": 1}, "min_value", "memory_bytes"),
        ({"memory_bytes": "lots"}, "type", "memory_bytes"),
        ({"size": 5}, "unknown_field", "size"),
        ({}, "required", None),
        ([1], "type", None),
    ],
)
def test_rest_errors_name_field_value_and_remedy(body: Any, code: str, field: str | None) -> None:
    ready_tier()
    answer = program("operator").patch("/api/v1/cache-tiers/default/", body, format="json")
    assert answer.status_code == 400
    problem = answer.json()
    assert (problem["code"], problem["field"]) == (code, field)
    assert problem["remedy"]


def test_rest_unknown_tier_and_tier_in_use() -> None:
    client = program("operator")
    assert client.get("/api/v1/cache-tiers/nope/").status_code == 404
    assert client.patch("/api/v1/cache-tiers/nope/", {"memory_bytes": 1}).status_code == 404
    ready_tier()

    def used() -> dict[str, list[str]]:
        return {"default": ["endpoint demo"]}

    uses.register("cache-tier", used)
    try:
        answer = client.delete("/api/v1/cache-tiers/default/")
    finally:
        uses.unregister("cache-tier", used)
    assert answer.status_code == 409
    assert answer.json()["code"] == "in_use"
    assert client.delete("/api/v1/cache-tiers/default/").status_code == 202
    tier = selectors.get_tier("default")
    assert tier is not None
    assert tier.shown_phase == "Deleting"
