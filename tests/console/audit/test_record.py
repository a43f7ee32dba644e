from __future__ import annotations

import pytest

from console.accounts.models import User
from console.audit import selectors
from console.audit.record import HIDDEN, diff, record
from tests.support.people import Cast, client_of

pytestmark = pytest.mark.django_db


def test_diff_lists_changes_by_dotted_field() -> None:
    before = {"replicas": 2, "cache": {"l1": {"size_gib": 0.5}, "l2": {}}, "same": 1}
    after = {"replicas": 3, "cache": {"l1": {"size_gib": 1.0}, "l2": {}}, "same": 1, "new": True}
    assert diff(before, after) == {
        "cache.l1.size_gib": [0.5, 1.0],
        "new": [None, True],
        "replicas": [2, 3],
    }


def test_secrets_are_not_stored(people: Cast) -> None:
    changes = {
        "password": ["old-pw", "new-pw"],
        "nested": {"api_key": "k", "token": ["t1", "t2"]},
        "url": ["redis://u:pw@h:1/0", "redis://h:1/0"],
        "password_file": ["", "/etc/x"],
    }
    event = record(people.alice, "endpoint.update", "endpoint/demo", changes)
    event.refresh_from_db()
    assert event.changes == {
        "password": HIDDEN,
        "nested": {"api_key": HIDDEN, "token": HIDDEN},
        "url": [f"redis://{HIDDEN}@h:1/0", "redis://h:1/0"],
        "password_file": ["", "/etc/x"],
    }


def test_audit_log_survives_the_account(people: Cast) -> None:
    event = record(people.alice, "x", "endpoint/demo")
    User.objects.filter(pk=people.alice.pk).delete()
    event.refresh_from_db()
    assert (event.actor_id, event.actor_name) == (people.alice.pk, "alice")
    assert "alice" in client_of(people.ada).get("/audit/").content.decode()
    assert record(None, "x", "y").actor_name == "system"


def test_request_is_named(people: Cast) -> None:
    client = client_of(people.ada)
    client.post(
        f"/access/{people.alice.pk}/role/",
        {"role": "viewer"},
        headers={"X-Request-ID": "ticket-42"},
    )
    assert [event.request_id for event in selectors.list_events(verb="user.role")] == ["ticket-42"]


@pytest.fixture
def trail(people: Cast) -> Cast:
    record(people.alice, "endpoint.create", "endpoint/demo", {"replicas": [None, 2]})
    record(people.alice, "endpoint.scale", "endpoint/demo", {"replicas": [2, 3]})
    record(people.ada, "endpoint.scale", "endpoint/other", {"before": 7, "after": 8})
    return people


@pytest.mark.parametrize(
    ("query", "shown", "hidden"),
    [
        ("", ["endpoint/other", "endpoint/demo"], []),
        (
            "actor=ada",
            ["endpoint/other"],
            ['<td data-label="Object" class="audit-value">endpoint/demo'],
        ),
        ("verb=endpoint.create", ["endpoint/demo"], ["endpoint/other"]),
        ("target=endpoint/dem", ["endpoint/demo"], ["endpoint/other"]),
        ("actor=nobody", ["No matching entries"], ["endpoint/other"]),
    ],
)
def test_page_filters_events(trail: Cast, query: str, shown: list[str], hidden: list[str]) -> None:
    client = client_of(trail.charlie)
    part = client.get(f"/audit/?{query}", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert part in client.get(f"/audit/?{query}").content.decode()
    for text in shown:
        assert text in part
    for text in hidden:
        assert text not in part


def test_page_shows_before_and_after(trail: Cast) -> None:
    html = client_of(trail.charlie).get("/audit/").content.decode()
    assert (
        '<del class="audit-old">2</del> → <ins class="audit-new text-decoration-none">3</ins>'
        in html
    )
    assert (
        '<del class="audit-old">7</del> → <ins class="audit-new text-decoration-none">8</ins>'
        in html
    )


def test_page_is_paginated(trail: Cast) -> None:
    for number in range(60):
        record(trail.alice, "endpoint.scale", f"endpoint/n{number}")
    client = client_of(trail.charlie)
    assert "1–50 of" in client.get("/audit/").content.decode()
    second = client.get("/audit/?page=2&actor=alice").content.decode()
    assert "endpoint/demo" in second
    assert "actor=alice" in second


def test_stored_values_cannot_inject_markup(people: Cast) -> None:
    record(people.alice, "<b>verb</b>", "endpoint/<script>", {"<i>": ["<u>", "<s>"]})
    html = client_of(people.ada).get("/audit/").content.decode()
    for raw in ("<b>verb", "/<script>", "<i>", "<u>", "<s>"):
        assert raw not in html


@pytest.mark.django_db
def test_every_action_names_its_object() -> None:
    assert record(None, "update", "endpoint/demo").verb == "endpoint.update"
    assert record(None, "key.rotate", "endpoint/demo").verb == "key.rotate"
