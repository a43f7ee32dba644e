from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts.models import LoginFailure
from console.audit.models import AuditEvent
from tests.support.people import PASSWORD, Cast

pytestmark = pytest.mark.django_db


def attempt(name: str, password: str, address: str = "127.0.0.1", next_: str = "") -> object:
    form = {"username": name, "password": password, "next": next_}
    return Client(REMOTE_ADDR=address).post("/login/", form)


def test_right_password_leads_in_and_is_on_the_trail(people: Cast) -> None:
    response = attempt("alice", PASSWORD, next_="/audit/")
    assert (response.status_code, response.url) == (302, "/audit/")
    assert AuditEvent.objects.get(verb="user.login").actor == people.alice


def test_next_leads_nowhere_else(people: Cast) -> None:
    assert attempt("alice", PASSWORD, next_="https://evil.example/").url == "/"


def test_wrong_password_and_unknown_name_read_the_same(people: Cast) -> None:
    wrong = attempt("alice", "nope").content.decode()
    unknown = attempt("nobody", "nope").content.decode()
    sentence = "User name and password do not match an active account."
    assert sentence in wrong
    assert sentence in unknown


def test_who_left_does_not_get_in(people: Cast) -> None:
    assert attempt("dora", PASSWORD).status_code == 200


def test_sixth_attempt_on_a_name_waits_even_with_the_right_password(people: Cast) -> None:
    for number in range(5):
        assert attempt("Alice", "nope", address=f"10.0.0.{number}").status_code == 200
    refused = attempt("alice", PASSWORD)
    assert refused.status_code == 429
    assert 290 <= int(refused.headers["Retry-After"]) <= 300
    assert "Too many failed logins. Wait " in refused.content.decode()
    # Another person is not held up by it.
    assert attempt("charlie", PASSWORD).status_code == 302


def test_many_names_from_one_address_wait_too(people: Cast) -> None:
    for number in range(20):
        attempt(f"guess{number}", "nope")
    assert attempt("alice", PASSWORD).status_code == 429
    assert attempt("alice", PASSWORD, address="10.9.9.9").status_code == 302


def test_a_forwarded_header_does_not_change_the_address(people: Cast) -> None:
    for number in range(20):
        headers = {"X-Forwarded-For": f"10.1.1.{number}"}
        Client().post("/login/", {"username": f"g{number}", "password": "x"}, headers=headers)
    assert attempt("alice", PASSWORD).status_code == 429


def test_the_wait_ends_and_success_forgives(people: Cast) -> None:
    for _ in range(5):
        attempt("alice", "nope")
    LoginFailure.objects.update(at=timezone.now() - timedelta(seconds=301))
    assert attempt("alice", PASSWORD).status_code == 302
    assert not LoginFailure.objects.exists()


def test_a_part_asked_by_htmx_sends_the_page_to_the_login() -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/audit/?actor=x"}
    response = Client().get("/audit/", headers=headers)
    assert response.status_code == 401
    assert response.headers["HX-Redirect"] == "/login/?next=%2Faudit%2F"


def test_logout_needs_a_post(people: Cast) -> None:
    client = Client()
    client.force_login(people.alice)
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/").status_code == 302
    assert client.get("/profile/").status_code == 302


def test_session_cookie_is_out_of_reach_of_scripts(people: Cast) -> None:
    response = attempt("alice", PASSWORD)
    (cookie,) = [c for name, c in response.cookies.items() if name.startswith("emberline_session")]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
