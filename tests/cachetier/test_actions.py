"""Tier operations on page and REST: create, resize, flush, delete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from django.test import Client
from rest_framework.test import APIClient

from cachetier import actions, node_admin, reconciler, selectors
from cachetier.client.node_list import Nodes, read_list
from cachetier.models import CacheNode, CacheTier
from cachetier.node_admin import password_file
from cachetier.tier import node_stats
from console.accounts.models import User
from console.audit.models import AuditEvent
from console.provisioners.base import Ref
from console.provisioners.fake import FakeProvisioner
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db
MIB = 1024**2
GIB = 1024**3
CURVE = node_stats.Curve(
    1.0 * GIB, 9000, ((GIB / 2, 0.1), (GIB, 0.2), (2.0 * GIB, 0.4), (4.0 * GIB, 0.5))
)
SAID = node_stats.NodeStats(
    used_bytes=256.0 * MIB,
    capacity_bytes=1024.0 * MIB,
    lookups=9000,
    hits=1800,
    namespaces=(node_stats.Namespace("3f9c0a", 250.0 * MIB, 40, 9000, 1800, 2),),
    curve=CURVE,
)


@pytest.fixture(autouse=True)
def _nodes(monkeypatch: pytest.MonkeyPatch, paper: FakeProvisioner) -> None:
    monkeypatch.setattr("cachetier.tier.node_stats.fetch_stats", lambda _url: SAID)


@pytest.fixture
def operator() -> User:
    return User.objects.create_user("olga", password="x", role="operator")


@pytest.fixture
def browser(operator: User) -> Client:
    client = Client()
    client.force_login(operator)
    return client


@pytest.fixture
def program(operator: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(operator)
    return client


def settle(name: str, passes: int = 3) -> CacheTier:
    for _ in range(passes):
        reconciler.reconcile(str(CacheTier.objects.get(name=name).pk))
    found = selectors.get_tier(name)
    assert found is not None
    return found


def listed(tier: CacheTier) -> list[str]:
    return [node.label for node in read_list(Nodes.parse(tier.status.url).path)]


# -- creating ----------------------------------------------------------------------------------
def test_tier_is_created_on_the_form(browser: Client) -> None:
    assert "Create cache tier" in browser.get("/cache/new/").text
    typed = {"name": "chat", "memory_bytes": "0.25", "node_count": "3", "policy": "lru"}
    answer = browser.post("/cache/new/", typed | {"copies": "2", "disk_bytes": ""}, follow=True)
    assert answer.redirect_chain == [("/cache/chat/", 302)]
    assert "Its nodes are starting" in answer.text
    tier = settle("chat")
    assert (tier.status.phase, tier.memory_bytes, tier.policy) == ("Ready", 256 * MIB, "lru")
    assert listed(tier) == ["cache-chat-0", "cache-chat-1", "cache-chat-2"]
    assert Nodes.parse(tier.status.url).replicas == 2
    event = AuditEvent.objects.get(verb="cache-tier.create", target="cache-tier/chat")
    assert event.actor_name == "olga"


def test_rejected_form_keeps_its_input(browser: Client) -> None:
    typed = {"name": "Chat", "memory_bytes": "1", "copies": "2"}
    answer = browser.post("/cache/new/", typed)
    assert answer.status_code == 400
    assert 'value="Chat"' in answer.text
    assert "lower-case letters" in answer.text
    typed["name"] = "chat"
    answer = browser.post("/cache/new/", typed)
    assert "Add a node, or set the replication factor to 1." in answer.text
    assert not CacheTier.objects.exists()


def test_rest_creates_and_rejects_duplicates(program: APIClient) -> None:
    made = program.post("/api/v1/cache-tiers/", {"name": "chat", "node_count": 2}, format="json")
    assert made.status_code == 201
    assert (made.json()["node_count"], made.json()["phase"]) == (2, "Pending")
    twin = program.post("/api/v1/cache-tiers/", {"name": "chat"}, format="json")
    assert (twin.status_code, twin.json()["code"]) == (409, "taken")
    for body in ({}, {"name": "new"}, {"name": "a", "size": 1}, [], {"name": "a", "copies": 9}):
        refused = program.post("/api/v1/cache-tiers/", body, format="json")
        assert refused.status_code == 400, body
        assert refused.json()["remedy"]
    assert CacheTier.objects.count() == 1


# -- changing ----------------------------------------------------------------------------------
def test_more_memory_and_more_nodes_restart_nothing(operator: User, paper: FakeProvisioner) -> None:
    actions.create(operator, "chat", {"memory_bytes": 256 * MIB})
    before = settle("chat")
    first = paper.observe(Ref("fake", "cache-chat")).replicas[0]

    actions.change(operator, "chat", {"memory_bytes": 512 * MIB, "node_count": 2})
    after = settle("chat")

    assert after.status.phase == "Ready"
    assert after.status.url == before.status.url, "workers need not be told anything"
    assert listed(after) == ["cache-chat-0", "cache-chat-1"]
    same = paper.observe(Ref("fake", "cache-chat")).replicas[0]
    assert (same.started_at, same.spec_hash) == (first.started_at, first.spec_hash)


def test_removed_nodes_leave_the_list_first(operator: User, paper: FakeProvisioner) -> None:
    actions.create(operator, "chat", {"node_count": 3})
    settle("chat")
    actions.change(operator, "chat", {"node_count": 1})
    tier = settle("chat", passes=1)
    assert listed(tier) == ["cache-chat-0"]
    assert len(paper.observe(Ref("fake", "cache-chat")).replicas) >= 1
    settle("chat")
    assert CacheNode.objects.count() == 1


def test_removed_node_hands_over_first(
    operator: User, paper: FakeProvisioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays until it has; the list has let go of it at once."""
    actions.create(operator, "chat", {"node_count": 3})
    settle("chat")
    requests: list[tuple[str, list[str]]] = []
    busy = True

    def handing(url: str, heirs: list[str]) -> bool:
        requests.append((url, heirs))
        return busy

    monkeypatch.setattr("cachetier.node_admin.hand_over", handing)
    actions.change(operator, "chat", {"node_count": 2})
    tier = settle("chat")
    assert listed(tier) == ["cache-chat-0", "cache-chat-1"]
    assert tier.status.phase == "Ready"
    assert len(paper.observe(Ref("fake", "cache-chat")).ready()) == 3
    heirs = Path(Nodes.parse(tier.status.url).path).read_text().splitlines()
    assert [line.rpartition("=")[2] for line in heirs] == ["cache-chat-0", "cache-chat-1"]
    leaving = CacheNode.objects.get(index=2)
    assert set(map(str, requests)) == {str((leaving.admin_url, heirs))}, "named as in the list"
    busy = False
    settle("chat")
    assert len(paper.observe(Ref("fake", "cache-chat")).replicas) == 2


STATS = {"handover": None}


@pytest.mark.parametrize(
    ("stats", "drain", "expected", "orders"),
    [
        ((200, STATS), (202, {}), True, ["/drain?to=redis://10.0.0.1:1/0?name=a,10.0.0.2:2"]),
        ((200, STATS), (409, {}), False, ["/drain?to=redis://10.0.0.1:1/0?name=a,10.0.0.2:2"]),
        ((200, {"handover": {"state": "running"}}), (202, {}), True, []),
        ((200, {"handover": {"state": "done"}}), (202, {}), False, []),
        ((200, {"handover": {"state": "failed"}}), (202, {}), False, []),
        ((500, STATS), (202, {}), False, []),
        ((200, "no object"), (202, {}), False, []),
    ],
)
def test_handover_request_to_a_node(
    stats: Any, drain: Any, expected: bool, orders: list[str]
) -> None:
    received: list[str] = []

    def take(path: str, _body: bytes) -> Any:
        received.append(unquote(path))
        return drain

    with http_stub({"/stats": stats, "/drain": take}) as node:
        heirs = ["redis://10.0.0.1:1/0?name=a", "10.0.0.2:2"]
        assert node_admin.hand_over(node.url, heirs) is expected
    assert received == orders
    assert not node_admin.hand_over(node.url, ["10.0.0.1:1"]), "nobody listens any more"


def test_dead_node_degrades_the_tier_and_keeps_its_slot(
    operator: User, paper: FakeProvisioner
) -> None:
    actions.create(operator, "chat", {"node_count": 2})
    settle("chat")
    paper.crash(Ref("fake", "cache-chat"), 1)
    tier = settle("chat", passes=1)
    assert (tier.status.phase, tier.status.reason) == ("Degraded", "NodeRestarting")
    assert listed(tier) == ["cache-chat-0", "cache-chat-1"]


# -- looking -----------------------------------------------------------------------------------
def test_page_shows_predicted_hits_of_other_sizes(browser: Client, operator: User) -> None:
    actions.create(operator, "chat", {"memory_bytes": GIB})
    settle("chat")
    page = browser.get("/cache/chat/")
    for shown in (
        "the estimated hit rate is 50 % (now 20 %)",
        "<polyline",
        "3f9c0a",
        "250 MiB",
        "no endpoint; select it",
    ):
        assert shown in page.text
    part = browser.get("/cache/chat/", headers={"HX-Request": "true"})
    assert "<polyline" in part.text
    assert "<form" not in part.text, "typing is not undone by a refresh"


def test_contents_over_rest(program: APIClient, operator: User) -> None:
    actions.create(operator, "chat", {"memory_bytes": GIB})
    assert program.get("/api/v1/cache-tiers/chat/contents/").json() == {
        "namespaces": [],
        "what_if": None,
    }
    settle("chat")
    found = program.get("/api/v1/cache-tiers/chat/contents/").json()
    assert found["namespaces"][0]["namespace"] == "3f9c0a"
    assert found["what_if"]["knee"] == {"share": 4.0, "size_bytes": 4.0 * GIB, "hit_rate": 0.5}
    assert program.get("/api/v1/cache-tiers/nope/contents/").status_code == 404


# -- flushing ----------------------------------------------------------------------------------
def flushing(tier: str, nodes: int, dropped: Any) -> tuple[Any, list[str]]:
    """Nodes' admin ports, which take the password and say `dropped`."""
    requests: list[str] = []

    def flush(path: str, _body: bytes) -> tuple[int, Any]:
        requests.append(path)
        return 200, json.dumps(dropped)

    stub = http_stub({"/flush": flush})
    return stub, requests


def point_at(stub: Stub, urls: int) -> None:
    for node in CacheNode.objects.order_by("index")[:urls]:
        node.admin_url = stub.url
        node.save()


def test_flush_reaches_every_node_and_is_audited(program: APIClient, operator: User) -> None:
    actions.create(operator, "chat", {"node_count": 2})
    settle("chat")
    stub, requested = flushing("chat", 2, {"dropped": 7})
    with stub as nodes:
        point_at(nodes, 2)
        body = {"namespace": "3f9c0a"}
        answer = program.post("/api/v1/cache-tiers/chat/flush/", body, format="json")
    assert answer.json() == {"dropped": 14}
    assert requested == ["/flush?namespace=3f9c0a"] * 2
    assert AuditEvent.objects.get(verb="cache-tier.flush").changes == {"namespace": "3f9c0a"}
    assert password_file().read_text() not in str(AuditEvent.objects.values())


def test_stopping_node_is_not_queried(program: APIClient, operator: User) -> None:
    actions.create(operator, "chat", {"node_count": 2})
    settle("chat")
    stub, requested = flushing("chat", 2, {"dropped": 7})
    with stub as nodes:
        point_at(nodes, 2)
        CacheNode.objects.filter(index=1).update(state="stopping")
        answer = program.post("/api/v1/cache-tiers/chat/flush/", {"namespace": ""}, format="json")
    assert answer.json() == {"dropped": 7}
    assert requested == ["/flush"]


@pytest.mark.parametrize("reply", [{}, [], {"dropped": "many"}])
def test_node_that_fails_to_flush_is_named(program: APIClient, operator: User, reply: Any) -> None:
    actions.create(operator, "chat", {"node_count": 1})
    settle("chat")
    stub, _ = flushing("chat", 1, reply)
    with stub as nodes:
        point_at(nodes, 1)
        answer = program.post("/api/v1/cache-tiers/chat/flush/", {"namespace": ""}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (502, "node_silent")
    assert "cache-chat-0" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        *({"namespace": value} for value in ("a/b", "x" * 65, "a&b=c", ["a"])),
        *({"namespace": value} for value in (None, False, [], {}, " ")),  # none of them means all
    ],
)
def test_invalid_namespace_is_rejected_before_any_query(
    program: APIClient, operator: User, body: dict[str, Any]
) -> None:
    actions.create(operator, "chat", {"node_count": 1})
    settle("chat")
    stub, requested = flushing("chat", 1, {"dropped": 3})
    with stub as nodes:
        point_at(nodes, 1)
        answer = program.post("/api/v1/cache-tiers/chat/flush/", body, format="json")
    assert (answer.status_code, requested) == (400, [])
    assert answer.json()["field"] == "namespace"


def test_page_flushes_only_the_typed_name(browser: Client, operator: User) -> None:
    actions.create(operator, "chat", {})
    settle("chat")
    stub, requested = flushing("chat", 1, {"dropped": 3})
    with stub as nodes:
        point_at(nodes, 1)
        form = {"namespace": "3f9c0a", "typed": "chat"}
        refused = browser.post("/cache/chat/flush/", form, follow=True)
        assert "Nothing was flushed. Type 3f9c0a" in refused.text
        assert requested == []
        done = browser.post("/cache/chat/flush/", form | {"typed": "3f9c0a"}, follow=True)
        assert "Flushed 3 values" in done.text
        browser.post("/cache/chat/flush/", {"namespace": "", "typed": "chat"})
    assert requested == ["/flush?namespace=3f9c0a", "/flush"]


# -- deleting ----------------------------------------------------------------------------------
def test_tier_deletion_needs_the_typed_name(browser: Client, operator: User) -> None:
    actions.create(operator, "chat", {})
    tier = settle("chat")
    path = Path(Nodes.parse(tier.status.url).path)
    assert path.exists()
    refused = browser.post("/cache/chat/delete/", {"name": "chta"})
    assert refused.status_code == 400
    assert "Nothing was deleted" in refused.text
    browser.post("/cache/chat/delete/", {"name": "chat"})
    for _ in range(4):
        for found in CacheTier.objects.all():
            reconciler.reconcile(str(found.pk))
    assert not CacheTier.objects.exists()
    assert not path.exists(), "workers' list is gone too"
    assert browser.get("/cache/chat/").status_code == 404
    gone = browser.get("/cache/chat/", headers={"HX-Request": "true"})
    assert gone.headers["HX-Redirect"] == "/cache/"
