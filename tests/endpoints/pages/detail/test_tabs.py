"""Tabs of an endpoint: comparison, rollback, events, danger zone."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from endpoints import actions
from endpoints.models import Endpoint, EndpointEvent, EndpointStatus, Replica, Revision
from endpoints.pages.detail import configuration
from endpoints.reconcile.reconciler import STEADY_S
from tests.support.console import browser, make_endpoint, pretend_ready
from tests.support.query_counts import check

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).with_name("tabs_query_counts.json")
AT = "/endpoints/demo/"


@pytest.fixture
def page(db: None) -> Client:
    return browser("operator")


@pytest.fixture
def ready(db: None) -> Endpoint:
    workers = {f"demo-worker-{n}": f"http://127.0.0.1:2000{n}" for n in (0, 1)}
    return pretend_ready(make_endpoint(replicas=2), url="http://127.0.0.1:9000", workers=workers)


@pytest.fixture
def changed(ready: Endpoint) -> Endpoint:
    """At revision 3; revision 2 serves."""
    actions.scale(actions.SYSTEM, "demo", 3)
    actions.patch(actions.SYSTEM, "demo", {"cache": {"l1": {"size_gib": 0.25}}})
    EndpointStatus.objects.update(served_once=True, served_generation=2, observed_generation=3)
    return Endpoint.objects.get()


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", response.content.decode())


def rows(response: Any) -> set[str]:
    """The fields which a comparison names."""
    return set(re.findall(r'font-monospace">([\w.]+)<', text_of(response)))


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("", {"cache.l1.size_gib"}),
        ("?old=1&new=wanted", {"cache.l1.size_gib", "replicas"}),
        ("?old=1&new=2", {"replicas"}),
        ("?old=3&new=1", {"cache.l1.size_gib", "replicas"}),
        ("?old=serving&new=wanted", {"cache.l1.size_gib"}),
        ("?old=serving&new=2", set()),
        ("?new=1", set()),
    ],
)
def test_any_two_revisions_are_compared(
    page: Client, changed: Endpoint, query: str, fields: set[str]
) -> None:
    answer = page.get(f"{AT}configuration/compare/{query}")
    assert rows(answer) == fields
    assert ("No differences" in text_of(answer)) is not fields
    assert ("restarts the workers" in text_of(answer)) is ("cache.l1.size_gib" in fields)


@pytest.mark.parametrize("side", ["4", "0", "-1", "x", "9" * 5000, "٣", "", "WANTED"])
def test_unknown_revision_is_404(page: Client, changed: Endpoint, side: str) -> None:
    due = 200 if side == "" else 404
    assert page.get(f"{AT}configuration/compare/", {"old": side}).status_code == due
    assert page.get(f"{AT}revisions/999999999999/").status_code == 404


def test_configuration_shows_the_pending_revision(page: Client, changed: Endpoint) -> None:
    answer = page.get(f"{AT}configuration/")
    assert "Pending changes" in text_of(answer)
    assert rows(answer) == {"cache.l1.size_gib"}
    EndpointStatus.objects.update(served_generation=3)
    assert "Pending changes" not in text_of(page.get(f"{AT}configuration/"))
    Revision.objects.filter(number__lt=3).delete()
    EndpointStatus.objects.update(served_generation=1)
    assert "Pending changes" not in text_of(page.get(f"{AT}configuration/")), "1 is not kept"


def test_every_field_is_shown_in_the_configuration(ready: Endpoint) -> None:
    reported = {
        value.path for group in configuration.value_groups(ready.parsed) for value in group.values
    }
    missing = set(ready.parsed.flat()) - reported - configuration.HIDDEN_FIELDS
    assert missing == set()


def test_rollback_is_previewed(page: Client, changed: Endpoint) -> None:
    answer = page.get(f"{AT}revisions/1/")
    assert rows(answer) == {"replicas", "cache.l1.size_gib"}
    assert "replaced one at a time" in text_of(answer)
    sent = {"generation": "3", "back": "revisions", "note": "It was slow."}
    done = page.post(f"{AT}revisions/1/rollback/", sent)
    assert done.url == f"{AT}revisions/"
    assert Endpoint.objects.get().spec["replicas"] == 2
    listed = text_of(page.get(f"{AT}revisions/"))
    assert "It was slow." in listed
    stale = page.post(f"{AT}revisions/2/rollback/", sent, follow=True)
    assert "changed meanwhile" in text_of(stale)


def test_revisions_are_paged_with_their_changes(page: Client, ready: Endpoint) -> None:
    for n in range(25):
        actions.scale(actions.SYSTEM, "demo", 1 if n % 2 else 3)
    first = page.get(f"{AT}revisions/").content.decode()
    second = page.get(f"{AT}revisions/?page=2").content.decode()
    assert first.count("Replicas:") == 20, "the last of a page knows the one before it"
    assert "create" in second


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", {"lost one", "ready two", "lost three"}),
        ("?severity=warning", {"lost one", "lost three"}),
        ("?kind=WorkerReady", {"ready two"}),
        ("?q=TWO", {"ready two"}),
        ("?q=pod-9", {"lost three"}),
        ("?q=%00&severity=loud&kind=Nothing", {"lost one", "ready two", "lost three"}),
        ("?q=nothing-like-it", set()),
    ],
)
def test_events_are_filtered(page: Client, ready: Endpoint, query: str, shown: set[str]) -> None:
    make = EndpointEvent.objects.create
    make(endpoint=ready, kind="WorkerLost", severity="warning", message="lost one")
    make(endpoint=ready, kind="WorkerReady", message="ready two")
    make(
        endpoint=ready, kind="WorkerLost", severity="warning", message="lost three", subject="pod-9"
    )
    text = page.get(f"{AT}events/{query}").content.decode()
    every = {"lost one", "ready two", "lost three"}
    assert {words for words in every if words in text} == shown
    assert ("Nothing matches" in text) is not shown
    part = page.get(f"{AT}events/{query}", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part


def test_pausing_in_the_danger_zone_needs_the_name(page: Client, ready: Endpoint) -> None:
    text = text_of(page.get(f"{AT}settings/"))
    assert 'id="pause-name"' in text
    assert 'id="delete-name"' in text
    for wrong in ("", "Demo"):
        answer = page.post(f"{AT}pause/", {"name": wrong, "back": "settings"}, follow=True)
        assert "Nothing was changed" in text_of(answer)
    assert Endpoint.objects.get().spec["replicas"] == 2
    done = page.post(f"{AT}pause/", {"name": "demo", "back": "settings"})
    assert done.url == f"{AT}settings/"
    assert Endpoint.objects.get().spec["replicas"] == 0
    assert 'id="pause-name"' not in text_of(page.get(f"{AT}settings/"))
    outside = page.post(f"{AT}resume/", {"back": "//evil.example/"})
    assert outside.url == AT, "only our own tabs"


def test_header_shows_the_state_on_every_tab(page: Client, ready: Endpoint) -> None:
    EndpointStatus.objects.update(
        phase="Degraded", reason="WorkerUnavailable", message="One <died>.", remedy="Look."
    )
    for path in ("workers/", "head/"):
        text = text_of(page.get(AT + path))
        assert "WorkerUnavailable" in text
        assert "One &lt;died&gt;." in text
        assert "data-stale" not in text
    brief = text_of(page.get(f"{AT}head/?brief=1"))
    assert "One &lt;died&gt;." not in brief, "the Overview tells it at length"
    steady = timezone.now() - timedelta(seconds=STEADY_S)
    EndpointStatus.objects.update(updated_at=steady)
    assert "data-stale" not in text_of(page.get(f"{AT}head/")), "nothing to reconcile in between"
    EndpointStatus.objects.update(updated_at=steady - timedelta(seconds=61))
    assert "data-stale" in text_of(page.get(f"{AT}head/"))


@pytest.mark.parametrize(
    "path", ["", "head/", "live/", "workers/", "cache/", "events/", "configuration/", "revisions/"]
)
def test_tab_needs_a_constant_number_of_queries(page: Client, ready: Endpoint, path: str) -> None:
    for n in range(9):
        Replica.objects.create(endpoint=ready, name=f"more-{n}", index=2 + n, state="ready")
        EndpointEvent.objects.create(endpoint=ready, kind=f"Kind{n}", message="x")
        actions.scale(actions.SYSTEM, "demo", n % 4)
    check(page, AT + path, KEPT)
