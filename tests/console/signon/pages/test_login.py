from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core import signing
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from console.audit.models import AuditEvent
from console.signon.models import LoginAttempt, Session
from console.web.server.client_address import network_of
from tests.support.people import PASSWORD, Cast

pytestmark = pytest.mark.django_db


def attempt(name: str, password: str, address: str = "127.0.0.1", next_: str = "") -> object:
    form = {"username": name, "password": password, "next": next_}
    return Client(REMOTE_ADDR=address).post("/login/", form)


def test_correct_password_logs_in_and_is_audited(people: Cast) -> None:
    response = attempt("alice", PASSWORD, next_="/audit/")
    assert (response.status_code, response.url) == (302, "/audit/")
    assert AuditEvent.objects.get(verb="user.login").actor == people.alice


@pytest.mark.parametrize("url", ["https://evil.example/", "//evil.example/", "/\\\\evil.example"])
def test_next_stays_in_the_console(people: Cast, url: str) -> None:
    assert attempt("alice", PASSWORD, next_=url).url == "/"


def test_wrong_password_and_unknown_name_have_one_message(people: Cast) -> None:
    wrong = attempt("alice", "nope").content.decode()
    unknown = attempt("nobody", "nope").content.decode()
    sentence = "User name and password do not match an active account."
    assert sentence in wrong
    assert sentence in unknown


def test_deactivated_user_cannot_log_in(people: Cast) -> None:
    assert attempt("dora", PASSWORD).status_code == 200


def test_sixth_attempt_on_a_name_is_delayed_even_with_the_password(people: Cast) -> None:
    for _ in range(5):
        assert attempt("Alice", "nope").status_code == 200
    refused = attempt("alice", PASSWORD)
    assert refused.status_code == 429
    assert 290 <= int(refused.headers["Retry-After"]) <= 300
    assert "Too many failed logins. Try again in " in refused.content.decode()
    # Another person is not held up by it, nor is the same one elsewhere.
    assert attempt("charlie", PASSWORD).status_code == 302
    assert attempt("alice", PASSWORD, address="10.0.0.7").status_code == 302


def test_attempts_counted_while_the_clock_was_ahead_delay_by_their_window(people: Cast) -> None:
    for _ in range(5):
        attempt("alice", "wrong")
    LoginAttempt.objects.update(at=timezone.now() + timedelta(days=1))
    refused = attempt("alice", PASSWORD)
    assert 290 <= int(refused.headers["Retry-After"]) <= 300
    LoginAttempt.objects.update(at=timezone.now() - timedelta(seconds=301))
    assert attempt("alice", PASSWORD).status_code == 302


def test_distributed_guessing_does_not_lock_out_the_owner(people: Cast, settings: Settings) -> None:
    settings.LOGIN_BRAKE_PER_USER = 20
    for number in range(20):
        assert attempt("alice", "nope", address=f"10.0.0.{number}").status_code == 200
    # The brake: one guess for each further address, the owner's first one among them.
    assert attempt("alice", "nope", address="10.0.1.1").status_code == 200
    assert attempt("alice", PASSWORD, address="10.0.1.1").status_code == 429
    assert attempt("alice", PASSWORD, address="10.0.1.2").status_code == 302
    # Only failed logins with this name are throttled.
    assert attempt("charlie", "nope", address="10.0.1.1").status_code == 200
    assert attempt("charlie", PASSWORD, address="10.0.1.1").status_code == 302


def test_console_wide_limit_applies(people: Cast, settings: Settings) -> None:
    settings.LOGIN_BRAKE = 10
    for number in range(10):
        attempt(f"guess{number}", "nope", address=f"10.0.0.{number}")
    assert attempt("alice", "nope", address="10.0.1.1").status_code == 200
    assert attempt("alice", PASSWORD, address="10.0.1.1").status_code == 429


def test_known_browser_is_not_limited_as_a_stranger(people: Cast) -> None:
    browser = Client(REMOTE_ADDR="10.0.0.1")
    right = {"username": "alice", "password": PASSWORD}
    browser.post("/login/", right)
    browser.post("/logout/")
    for number in range(20):
        attempt(f"guess{number}", "nope", address="10.0.0.1")
    assert attempt("alice", PASSWORD, address="10.0.0.1").status_code == 429
    for _ in range(4):
        assert browser.post("/login/", {**right, "password": "x"}).status_code == 200
    assert browser.post("/login/", right).status_code == 302
    # It is one browser of one person: it helps with no other name, and is not without limit.
    browser.post("/logout/")
    assert browser.post("/login/", {**right, "username": "charlie"}).status_code == 429
    for _ in range(5):
        browser.post("/login/", {**right, "password": "x"})
    assert browser.post("/login/", right).status_code == 429


def test_forged_browser_mark_is_ignored(people: Cast, settings: Settings) -> None:
    for _ in range(5):
        attempt("alice", "nope")
    stranger = Client()
    for mark in ("x", "WyJhbGljZSIsImFiYyJd:1abcde:AAAA", signing.dumps(["alice", "x"])):
        stranger.cookies[settings.DEVICE_COOKIE_NAME] = mark
        form = {"username": "alice", "password": PASSWORD}
        assert stranger.post("/login/", form).status_code == 429


def test_ipv6_network_counts_as_one_address(people: Cast) -> None:
    for number in range(5):
        attempt("alice", "nope", address=f"2001:db8:1:2::{number:x}")
    assert attempt("alice", PASSWORD, address="2001:db8:1:2:ffff::1").status_code == 429
    assert attempt("alice", PASSWORD, address="2001:db8:1:3::1").status_code == 302


def test_many_names_from_one_address_are_limited(people: Cast) -> None:
    for number in range(20):
        attempt(f"guess{number}", "nope")
    assert attempt("alice", PASSWORD).status_code == 429
    assert attempt("alice", PASSWORD, address="10.9.9.9").status_code == 302


def test_forwarded_header_does_not_change_the_address(people: Cast) -> None:
    for number in range(20):
        headers = {"X-Forwarded-For": f"10.1.1.{number}"}
        Client().post("/login/", {"username": f"g{number}", "password": "x"}, headers=headers)
    assert attempt("alice", PASSWORD).status_code == 429


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("unix:", "unix:"),
    ],
)
def test_scope_of_each_limit(address: str, counted: str) -> None:
    assert network_of(address) == counted


def test_limit_expires_and_success_resets_it(people: Cast) -> None:
    for _ in range(5):
        attempt("alice", "nope")
    LoginAttempt.objects.update(at=timezone.now() - timedelta(seconds=301))
    assert attempt("alice", PASSWORD).status_code == 302
    assert not LoginAttempt.objects.exists()


def test_htmx_request_redirects_the_page_to_the_login() -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/audit/?actor=x"}
    response = Client().get("/audit/", headers=headers)
    assert response.status_code == 401
    assert response.headers["HX-Redirect"] == "/login/?next=%2Faudit%2F%3Factor%3Dx"


@pytest.mark.parametrize(
    ("referer", "page"),
    [
        ("http://testserver/costs/budgets/", "/costs/budgets/"),
        ("http://testserver/endpoints/?sort=name", "/endpoints/?sort=name"),
        ("", "/"),
        ("http://[", "/"),
    ],
)
def test_submitted_form_returns_to_its_page_after_the_login(referer: str, page: str) -> None:
    response = Client().post("/costs/budgets/new/", {"name": "x"}, headers={"Referer": referer})
    assert response.status_code == 302
    assert parse_qs(urlsplit(response.headers["Location"]).query) == {"next": [page]}


def test_logout_needs_a_post(people: Cast) -> None:
    client = Client()
    client.force_login(people.alice)
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/").status_code == 302
    assert client.get("/profile/").status_code == 302


def test_session_cookie_is_http_only(people: Cast) -> None:
    response = attempt("alice", PASSWORD)
    (cookie,) = [c for name, c in response.cookies.items() if name.startswith("emberline_session")]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"


def test_failed_logins_are_audited_without_the_input(people: Cast) -> None:
    attempt("alice", "nope", address="10.0.0.9")
    attempt("my-Secret-Password", "x")
    attempt("dora", PASSWORD)
    events = list(AuditEvent.objects.filter(verb="user.login.refused").order_by("pk"))
    assert [(e.target, e.changes["reason"]) for e in events] == [
        ("user/alice", "password"),
        ("user/(unknown)", "name"),
        ("user/dora", "inactive"),
    ]
    assert events[0].changes["address"] == "10.0.0.9"
    assert all(e.actor is None for e in events)
    assert "my-Secret-Password" not in str([vars(e) for e in events])


def test_logout_is_audited(people: Cast) -> None:
    client = Client()
    client.force_login(people.alice)
    client.post("/logout/")
    assert AuditEvent.objects.get(verb="user.logout").actor == people.alice
    assert not Session.objects.filter(user=people.alice).exists()
