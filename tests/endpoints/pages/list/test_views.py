"""Endpoint list: filters, columns and bulk actions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.accounts.models import Membership, Team, User
from console.audit.models import AuditEvent
from endpoints import actions
from endpoints.models import Endpoint, EndpointStatus
from endpoints.pages.list import columns
from endpoints.pages.list.columns import Cell, Column, FilledColumns
from endpoints.spec.endpoint_spec import merge
from tests.support.console import browser, make_endpoint
from tests.support.query_counts import check

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).with_name("list_query_counts.json")
PART = {"HX-Request": "true"}


@pytest.fixture
def page(db: None) -> Client:
    return browser("operator")


@pytest.fixture
def fleet(db: None) -> None:
    for name, phase, more in (
        ("chat", "Ready", {"model": "meta/llama-8b"}),
        ("docs", "Degraded", {"model": "qwen/qwen-7b", "routing": {"strategy": "kvaware"}}),
        ("batch", "Failed", {"model": "meta/llama-8b", "routing": {"enabled": False}}),
        ("gone", "Ready", {"model": "smollm2"}),
    ):
        made = make_endpoint(name)
        made.spec = merge(made.spec, more)
        made.save(update_fields=["spec"])
        EndpointStatus.objects.filter(pk=made.pk).update(phase=phase, observed_generation=1)
    actions.delete(actions.SYSTEM, "gone")


@pytest.fixture
def answering() -> Iterator[list[int]]:
    """A column of another app, and the number of its queries."""
    requests: list[int] = []

    def fill(rows: Sequence[Endpoint]) -> Mapping[str, Mapping[str, Cell]]:
        requests.append(len(rows))
        return {"x-a": {row.name: Cell("a-" + row.name) for row in rows}, "x-b": {}}

    columns.register(FilledColumns(Column("x-a", "Column A"), fill))
    columns.register(FilledColumns(Column("x-b", "Column B"), fill))
    yield requests
    for key in ("x-a", "x-b"):
        columns._filled_columns.pop(key)


def names(client: Client, query: str = "") -> list[str]:
    text = client.get(f"/endpoints/{query}", headers=PART).content.decode()
    return re.findall(r'<a class="fw-bold[^>]*href="/endpoints/([\w-]+)/"', text)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["batch", "chat", "docs", "gone"]),
        ("?q=cha", ["chat"]),
        ("?q=LLAMA", ["batch", "chat"]),
        ("?q=llama+chat", ["chat"]),
        ("?phase=Degraded", ["docs"]),
        ("?phase=Ready", ["chat"]),
        ("?phase=Deleting", ["gone"]),
        ("?strategy=kvaware", ["docs"]),
        ("?strategy=roundrobin", ["batch"]),
        ("?strategy=prefixaware", ["chat", "gone"]),
        ("?model=qwen/qwen-7b", ["docs"]),
        ("?cluster=-", ["batch", "chat", "docs", "gone"]),
        ("?cluster=east", []),
        ("?team=-", ["batch", "chat", "docs", "gone"]),
        ("?sort=-name", ["gone", "docs", "chat", "batch"]),
        ("?sort=phase", ["batch", "docs", "gone", "chat"]),
        ("?sort=-phase", ["chat", "gone", "docs", "batch"]),
        ("?sort=model", ["batch", "chat", "docs", "gone"]),
        ("?sort=created", ["chat", "docs", "batch", "gone"]),
        # Words of old bookmarks, and of people who try.
        ("?phase=Sideways&strategy=magic&sort=spec", ["batch", "chat", "docs", "gone"]),
        ("?q=%00", ["batch", "chat", "docs", "gone"]),
        ("?page=99", ["batch", "chat", "docs", "gone"]),
    ],
)
def test_url_holds_filter_and_sort_order(
    page: Client, fleet: None, query: str, found: list[str]
) -> None:
    assert names(page, query) == found


def test_filters_keep_their_selection_and_list_existing_values(page: Client, fleet: None) -> None:
    text = page.get("/endpoints/?phase=Degraded&model=qwen/qwen-7b&sort=-phase").content.decode()
    assert "<option selected>Degraded</option>" in text
    assert '<option value="qwen/qwen-7b" selected>' in text
    assert '<option value="meta/llama-8b">' in text
    assert 'name="team"' not in text, "there is one choice only"
    assert 'aria-sort="descending"' in text
    assert "?phase=Degraded&amp;model=qwen%2Fqwen-7b&amp;sort=phase" in text, (
        "sorting keeps the filter"
    )
    none = page.get("/endpoints/?q=nothing-like-it").content.decode()
    assert "No matching endpoints" in none
    assert "No endpoints yet" not in none


def test_only_visible_endpoints_are_listed_filtered_and_offered(fleet: None) -> None:
    team = Team.objects.create(name="Blue", slug="blue")
    bob = User.objects.create_user("bob", password="x", role="member")
    Membership.objects.create(team=team, user=bob, role="viewer", source="hand")
    Endpoint.objects.filter(name="docs").update(team=team)
    client = Client()
    client.force_login(bob)
    assert names(client) == ["docs"]
    assert names(client, "?q=chat") == []
    text = client.get("/endpoints/").content.decode()
    assert "llama-8b" not in text
    assert "bulk-form" not in text
    assert names(browser("admin"), "?team=blue") == ["docs"]
    assert names(browser("admin"), "?team=-") == ["batch", "chat", "gone"]


def test_columns_are_saved_per_user(page: Client, fleet: None) -> None:
    kept = {"column": ["phase", "revision", "nonsense"], "query": "q=chat"}
    answer = page.post("/endpoints/columns/", kept)
    assert answer.url == "/endpoints/?q=chat"
    text = page.get("/endpoints/").content.decode()
    assert 'data-label="Revision"' in text
    assert 'data-label="Model"' not in text
    assert 'data-label="Model"' in browser("viewer").get("/endpoints/").content.decode()
    page.post("/endpoints/columns/", {"reset": "1"})
    assert 'data-label="Model"' in page.get("/endpoints/").content.decode()


def test_slow_columns_are_filled_after_the_page(
    page: Client, fleet: None, answering: list[int]
) -> None:
    first = page.get("/endpoints/").content.decode()
    assert answering == []
    assert 'hx-trigger="load, every' in first
    part = page.get("/endpoints/", headers=PART).content.decode()
    assert answering == [4], "columns with the same source are asked for once"
    assert "a-chat" in part
    assert "see the console log" in part, "a column without an answer says so"
    assert 'hx-trigger="load' not in part


def test_failing_column_leaves_the_list_working(page: Client, fleet: None) -> None:
    def fill(_rows: Sequence[Endpoint]) -> Mapping[str, Mapping[str, Cell]]:
        raise RuntimeError("no")

    columns.register(FilledColumns(Column("x-c", "Column C"), fill))
    try:
        answer = page.get("/endpoints/", headers=PART)
    finally:
        columns._filled_columns.pop("x-c")
    assert answer.status_code == 200
    assert "see the console log" in answer.content.decode()


def test_list_needs_a_constant_number_of_queries(page: Client, fleet: None) -> None:
    for n in range(12):
        make_endpoint(f"more-{n}")
    check(page, "/endpoints/?q=o&sort=-phase&phase=Pending", KEPT)
    check(page, "/endpoints/", KEPT)


# --- one verb for many ----------------------------------------------------------------------------


def results(answer: Any) -> dict[str, bool]:
    found = re.findall(
        r'data-ok="(yes|no)">.*?/endpoints/([\w-]+)/"', answer.content.decode(), re.DOTALL
    )
    return {name: ok == "yes" for ok, name in found}


def test_bulk_action_confirms_once_and_reports_each(page: Client, fleet: None) -> None:
    ask = page.post("/endpoints/bulk/", {"verb": "scale", "name": ["chat", "batch", "nobody"]})
    text = ask.content.decode()
    assert "Scale 2 endpoints?" in text
    assert 'name="generation-chat" value="1"' in text
    assert {e.spec["replicas"] for e in Endpoint.objects.all()} == {1}, "nothing yet"
    actions.scale(actions.SYSTEM, "batch", 2)  # a concurrent change
    sent = {"verb": "scale", "name": ["chat", "batch", "nobody"], "replicas": "3"}
    sent |= {"generation-chat": "1", "generation-batch": "1"}
    done = page.post("/endpoints/bulk/run/", sent)
    assert results(done) == {"chat": True, "batch": False, "nobody": False}
    assert "changed meanwhile" in done.content.decode()
    wanted = dict(Endpoint.objects.values_list("name", "spec__replicas"))
    assert (wanted["chat"], wanted["batch"]) == (3, 2)
    ids = set(
        AuditEvent.objects.filter(
            verb="endpoint.scale", actor__username="one-operator"
        ).values_list("request_id", flat=True)
    )
    assert len(ids) == 1, "one request, as the trail tells it"


def test_bulk_pause_and_resume(page: Client, fleet: None) -> None:
    both = {"name": ["chat", "docs"]}
    assert results(page.post("/endpoints/bulk/run/", {"verb": "pause", **both})) == {
        "chat": True,
        "docs": True,
    }
    assert Endpoint.objects.get(name="docs").spec["replicas"] == 0
    page.post("/endpoints/bulk/run/", {"verb": "resume", **both})
    assert Endpoint.objects.get(name="docs").spec["replicas"] == 1


def test_bulk_delete_needs_the_typed_count(page: Client, fleet: None) -> None:
    sent = {"verb": "delete", "name": ["chat", "docs"]}
    for wrong in ("", "1", "two"):
        answer = page.post("/endpoints/bulk/run/", {**sent, "typed": wrong})
        assert answer.status_code == 400
        assert "Nothing was deleted" in answer.content.decode()
    assert Endpoint.objects.filter(deleted_at__isnull=True).count() == 3
    assert results(page.post("/endpoints/bulk/run/", {**sent, "typed": "2"})) == {
        "chat": True,
        "docs": True,
    }
    assert set(Endpoint.objects.filter(deleted_at__isnull=True).values_list("name", flat=True)) == {
        "batch"
    }


@pytest.mark.parametrize("replicas", ["-1", "x", "", "9" * 5000, "65"])
def test_bulk_action_rejects_invalid_input_with_a_message(
    page: Client, fleet: None, replicas: str
) -> None:
    sent = {"verb": "scale", "name": ["chat"], "replicas": replicas}
    answer = page.post("/endpoints/bulk/run/", sent)
    assert answer.status_code == 200
    assert results(answer) == {"chat": False}
    assert "whole number" in answer.content.decode()
    for empty in ({}, {"verb": "scale"}, {"verb": "explode", "name": "chat"}):
        for path in ("bulk/", "bulk/run/"):
            assert page.post(f"/endpoints/{path}", empty).status_code == 302


def test_bulk_action_is_limited_by_permissions(fleet: None) -> None:
    assert browser("viewer").post("/endpoints/bulk/", {"verb": "pause"}).status_code == 403
    team = Team.objects.create(name="Blue", slug="blue")
    bob = User.objects.create_user("bob", password="x", role="member")
    Membership.objects.create(team=team, user=bob, role="operator", source="hand")
    Endpoint.objects.filter(name="docs").update(team=team)
    client = Client()
    client.force_login(bob)
    sent = {"verb": "delete", "name": ["docs", "chat", "nobody"], "typed": "3"}
    answer = client.post("/endpoints/bulk/run/", sent)
    assert results(answer) == {"docs": True, "chat": False, "nobody": False}
    text = answer.content.decode()
    assert text.count("Unknown endpoint") == 2, "another team's is as if not there"
    assert not Endpoint.objects.get(name="chat").deleting
