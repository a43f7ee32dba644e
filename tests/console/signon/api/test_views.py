from __future__ import annotations

import pytest
from django.test import Client

from console.audit.models import AuditEvent
from console.people import token_actions
from console.signon import factors
from console.signon.models import Session
from tests.console.signon.test_confirmation import old
from tests.console.signon.test_factors import with_factor
from tests.support.people import Cast, client_of

pytestmark = pytest.mark.django_db


def bearer(people: Cast, name: str, role: str = "viewer") -> Client:
    _, clear = token_actions.create_token(getattr(people, name), "program", role)
    return Client(headers={"Authorization": f"Bearer {clear}"})


def test_own_sessions_are_listed_without_those_of_others(people: Cast) -> None:
    alice, charlie = client_of(people.alice), client_of(people.charlie)
    program = bearer(people, "alice")
    (row,) = program.get("/api/v1/sessions/").json()["results"]
    assert row["id"] == Session.objects.get(user=people.alice).pk
    foreign = Session.objects.get(user=people.charlie).pk
    assert program.get(f"/api/v1/sessions/{foreign}/").status_code == 404
    assert program.delete(f"/api/v1/sessions/{foreign}/").status_code == 404
    assert program.get(f"/api/v1/sessions/{row['id']}/").json() == row
    assert program.delete(f"/api/v1/sessions/{row['id']}/").status_code == 204
    assert alice.get("/profile/").status_code == 302
    assert charlie.get("/profile/").status_code == 200


def test_admin_ends_sessions_and_resets_the_second_factor(people: Cast) -> None:
    with_factor(people.alice)
    session = client_of(people.alice)
    operator, admin = bearer(people, "alice", "operator"), bearer(people, "ada", "admin")
    for path in ("/api/v1/users/alice/sessions/", "/api/v1/users/alice/factor/"):
        assert operator.delete(path).status_code == 403
        assert session.get("/profile/").status_code == 200
        assert admin.delete(path).status_code == 204
        assert session.get("/profile/").status_code == 302
        session = client_of(people.alice)
    assert not factors.is_on(people.alice)
    assert AuditEvent.objects.get(verb="user.factor.reset").actor == people.ada
    assert admin.delete("/api/v1/users/alice/factor/").status_code == 404
    assert admin.delete("/api/v1/users/nobody/sessions/").status_code == 404


def test_session_confirms_sensitive_operations_and_a_token_does_not(people: Cast) -> None:
    browser, program = old(client_of(people.ada)), bearer(people, "ada", "admin")
    role = {"data": {"role": "admin"}, "content_type": "application/json"}
    answer = browser.patch("/api/v1/users/charlie/", **role)
    assert (answer.status_code, answer.json()["code"]) == (403, "confirm_needed")
    people.charlie.refresh_from_db()
    assert people.charlie.role == "viewer"
    # A header which only looks like a token's does not help.
    odd = browser.patch("/api/v1/users/charlie/", **role, headers={"Authorization": "Bearer"})
    assert odd.status_code == 401
    assert program.patch("/api/v1/users/charlie/", **role).status_code == 200
