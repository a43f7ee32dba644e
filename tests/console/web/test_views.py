"""Quick search, Settings and About; the menu's order and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from console.accounts.models import Membership, Team, User
from console.web import about
from console.web.shell import cards, navigation, search
from console.web.shell.cards import Card, Fact
from dashboards.alerts.settings.models import OwnRule
from endpoints.keys import actions as keys
from tests.support.console import make_endpoint, pretend_ready
from tests.support.people import Cast, client_of

pytestmark = pytest.mark.django_db
PART = {"HX-Request": "true"}


@pytest.fixture
def broken() -> Iterator[None]:
    """A room whose every word fails."""

    def fail(*_: Any) -> Any:
        raise RuntimeError("no")

    search.register_finder(fail)
    card = Card("x-broken", "Broken", "It fails.", 1, fail)
    cards.register_card(card)
    yield
    search._finders.unregister(fail)
    cards._cards.unregister(card)


def hits(client: Any, text: str) -> list[str]:
    page = client.get("/search/", {"q": text}, headers=PART).content.decode()
    return re.findall(r'<a [^>]*href="([^"]+)"', page)


def test_objects_and_pages_are_found_by_a_few_letters(people: Cast) -> None:
    for name in ("demo", "other-demo", "chat"):
        make_endpoint(name)
    ada = client_of(people.ada)
    assert hits(ada, "dem") == ["/endpoints/demo/", "/endpoints/other-demo/"], "beginnings first"
    assert hits(ada, "demo lo") == ["/endpoints/demo/logs/"]
    assert hits(ada, "demo conf") == [
        f"/endpoints/demo/{page}/"
        for page in ("configuration", "revisions", "manifest", "settings")
    ], "the pages of the group"
    assert [url for url in hits(ada, "canary") if "/canary/" in url] == [
        f"/routing/endpoints/{name}/canary/" for name in ("chat", "demo", "other-demo")
    ], "a tab of the first endpoints"
    assert hits(ada, "dark theme") == ["/profile/"]
    assert "/costs/" in hits(ada, "COST")
    assert hits(ada, "smollm")[0] == "/endpoints/chat/", "by the model, too"
    for nothing in ("", "  ", "zzz", "%", "_" * 5000, "demo zzz qqq"):
        assert hits(ada, nothing) == [], nothing
    whole = ada.get("/search/?q=chat").content.decode()
    assert "<html" in whole
    assert 'href="/endpoints/chat/"' in whole
    assert "&lt;b&gt;" in ada.get("/search/?q=<b>").content.decode()


def test_search_finds_only_visible_objects(people: Cast) -> None:
    make_endpoint("demo")
    team = Team.objects.create(name="Blue", slug="blue")
    bob = User.objects.create_user("bob", password="x", role="member")
    Membership.objects.create(team=team, user=bob, role="viewer", source="hand")
    assert hits(client_of(bob), "demo") == []
    assert hits(client_of(bob), "demo lo") == []
    assert "/sign-on/" not in hits(client_of(bob), "sign-on")
    assert "/sign-on/" in hits(client_of(people.ada), "sign-on")


def test_objects_of_every_kind_are_found_and_grouped(people: Cast) -> None:
    endpoint = make_endpoint("demo")
    pretend_ready(endpoint, workers={"demo-worker-0": "http://127.0.0.1:1"})
    key = keys.create(people.alice, "demo", {"name": "batch-jobs"}).key
    Team.objects.create(name="Search quality", slug="search")
    OwnRule.objects.create(name="QueueTooLong", expr="up", lasting_s=60, severity="warning")
    ada = client_of(people.ada)
    assert hits(ada, "worker-0") == ["/endpoints/demo/workers/"]
    assert hits(ada, "batch-") == ["/endpoints/demo/access/"]
    assert hits(ada, key.prefix) == ["/endpoints/demo/access/"]
    assert hits(ada, "search qual") == ["/access/teams/search/"]
    assert hits(ada, "charlie") == ["/access/?q=charlie"]
    assert hits(ada, "routererrorr") == ["/alerts/rules/RouterErrorRatio/"]
    assert hits(ada, "queuetoo") == ["/alerts/rules/QueueTooLong/"]
    assert "/settings/#card-retention" in hits(ada, "retention")
    assert "/alerts/silences/" in hits(ada, "silences")
    assert hits(ada, "create endp") == ["/endpoints/new/"]
    page = ada.get("/search/", {"q": "demo"}, headers=PART).content.decode()
    assert re.findall(r'class="hit-kind"[^>]*>([^<]+)<', page) == ["Endpoints", "Workers"]
    seen = client_of(people.charlie)
    assert hits(seen, "charlie") == [], "only admins list users"
    assert hits(seen, "create endp") == [], "viewers create nothing"
    stranger = User.objects.create_user("eve", password="x", role="member")
    other = Team.objects.create(name="Other", slug="other")
    Membership.objects.create(team=other, user=stranger, role="viewer", source="hand")
    for text in ("worker-0", "batch-", "search qual", "queuetoo"):
        assert hits(client_of(stranger), text) == [], text


def test_failing_search_source_affects_no_other(people: Cast, broken: None) -> None:
    make_endpoint("demo")
    ada = client_of(people.ada)
    assert hits(ada, "demo") == ["/endpoints/demo/"]
    text = ada.get("/settings/").content.decode()
    assert "Not available." in text
    assert "Retention" in text


def test_settings_show_values_and_their_source(people: Cast, settings: Any) -> None:
    text = client_of(people.charlie).get("/settings/").content.decode()
    for words in ("Clusters", "Prices", "Metrics and alerts", "Retention", "Installation"):
        assert words in text
    assert "/clusters/" in text
    from dashboards.overview.extensions import _hide_login

    assert _hide_login("http://me:secret@prom.example:9090/x") == "http://prom.example:9090"
    assert _hide_login("") == ""


def test_admin_card_needs_an_admin(people: Cast) -> None:
    card = Card("x-admin", "Only admins", "", 1, lambda _: (Fact("a", "b"),), role="admin")
    cards.register_card(card)
    try:
        assert b"Only admins" in client_of(people.ada).get("/settings/").content
        assert b"Only admins" not in client_of(people.charlie).get("/settings/").content
    finally:
        cards._cards.unregister(card)


def test_about_page_lists_versions_and_licences(people: Cast) -> None:
    text = client_of(people.ada).get("/about/").content.decode()
    for words in (
        "Python",
        "Django",
        "htmx.org",
        "0BSD",
        "@tabler/icons",
        connection.display_name,
        "celery",
    ):
        assert words in text, words
    less = client_of(people.charlie).get("/about/").content.decode()
    assert "installed Python packages" in text
    assert "installed Python packages" not in less
    assert len(about.browser_files()) >= 4, "every vendored package of the list"


def test_menu_headings_are_ordered(people: Cast) -> None:
    text = client_of(people.ada).get("/audit/").content.decode()
    headings = re.findall(r'class="nav-section"[^>]*>([^<]+)<', text)
    assert headings == ["Observability", "Infrastructure", "Administration"]
    orders = [item.order for item in navigation.list_items()]
    assert orders == sorted(orders)
    assert text.count('class="nav-link active"') == 1


def test_page_below_another_url_is_selected_itself(people: Cast) -> None:
    item = navigation.NavItem("Followed", "endpoints:followed", "eye", 21)
    navigation.register_item(item)
    try:
        text = client_of(people.ada).get("/endpoints/followed/").content.decode()
    finally:
        navigation._items.unregister(item)
    (active,) = re.findall(r'class="nav-link active" href="([^"]+)"', text)
    assert active == "/endpoints/followed/"


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/endpoints/demo/logs/", "Endpoints"),
        ("/what-if/endpoints/demo/", "Endpoints"),
        ("/advisor/endpoints/demo/", "Endpoints"),
        ("/routing/endpoints/demo/kv/", "Endpoints"),
    ],
)
def test_the_menu_marks_the_entry_of_the_page(people: Cast, path: str, label: str) -> None:
    make_endpoint("demo")
    page = client_of(people.ada).get(path).content.decode()
    entries = re.findall(r'<li class="nav-item active">(.*?)</li>', page, re.DOTALL)
    assert [re.sub(r"<[^>]+>", "", entry).strip() for entry in entries] == [label]
