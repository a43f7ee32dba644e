"""Second factor: single use, encryption, policy and reset."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client, override_settings
from pytest_django.fixtures import Settings

from console.accounts.models import User
from console.audit.models import AuditEvent
from console.signon import totp
from console.signon.models import Factor, Session
from tests.support.people import PASSWORD, Cast, client_of
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # "12345678901234567890", as in RFC 6238


def code(off: int = 0, secret: str = SECRET) -> str:
    if off < 0:  # valid as long as its step is not two behind
        until(lambda: time.time() % 30 < 25)
    return totp.code_at(secret, int(time.time()) // 30 + off)


def with_factor(user: User) -> list[str]:
    """Turned on with the code of the step before, so that the present one is not spent."""
    codes = totp.turn_on(user, SECRET, code(-1))
    assert codes
    return codes


def first_step(name: str = "alice") -> Client:
    client = Client()
    answer = client.post("/login/", {"username": name, "password": PASSWORD, "next": "/audit/"})
    assert (answer.status_code, answer.url) == (302, "/login/code/")
    return client


def inside(client: Client) -> bool:
    return client.get("/profile/").status_code == 200


@pytest.mark.parametrize(
    ("at", "shown"),
    [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (20000000000, "353130")],
)
def test_codes_equal_those_of_the_standard(at: int, shown: str) -> None:
    assert totp.code_at(SECRET, at // 30) == shown


def test_password_alone_is_not_sufficient_with_a_second_factor(people: Cast) -> None:
    with_factor(people.alice)
    client = first_step()
    assert not inside(client)
    assert not Session.objects.filter(user=people.alice).exists()
    answer = client.post("/login/code/", {"code": code()})
    assert (answer.status_code, answer.url) == (302, "/audit/")
    assert inside(client)
    assert Session.objects.get(user=people.alice).method == "with a password and a code"
    assert AuditEvent.objects.get(verb="user.login").actor == people.alice


def test_code_is_valid_once(people: Cast) -> None:
    with_factor(people.alice)
    now = code()
    assert first_step().post("/login/code/", {"code": now}).status_code == 302
    again = first_step()
    assert again.post("/login/code/", {"code": now}).status_code == 200
    assert not inside(again)
    event = AuditEvent.objects.get(verb="user.login.refused")
    assert (event.changes["reason"], event.target) == ("second factor", "user/alice")


def test_earlier_code_is_invalid_after_a_later_one(people: Cast) -> None:
    with_factor(people.alice)
    assert totp.use_code(people.alice, code(1)) == totp.CODE
    assert totp.use_code(people.alice, code(0)) == ""


@pytest.mark.parametrize("typed", ["", "000000", "12345", "１２３４５６", "x" * 40, "\x00"])
def test_malformed_code_is_invalid(people: Cast, typed: str) -> None:
    with_factor(people.alice)
    client = first_step()
    assert client.post("/login/code/", {"code": typed}).status_code == 200
    assert not inside(client)


def test_recovery_code_is_valid_once(people: Cast) -> None:
    codes = with_factor(people.alice)
    assert len(set(codes)) == 10
    assert first_step().post("/login/code/", {"code": f" {codes[0].upper()} "}).status_code == 302
    assert first_step().post("/login/code/", {"code": codes[0]}).status_code == 200
    assert Factor.objects.get().recovery_left == 9


def test_code_guessing_is_limited_across_browsers(people: Cast) -> None:
    with_factor(people.alice)
    for number in range(5):
        client = first_step()
        client.defaults["REMOTE_ADDR"] = f"10.0.0.{number}"
        client.post("/login/code/", {"code": "000000"})
    answer = first_step().post("/login/code/", {"code": code()})
    assert answer.status_code == 429


def test_first_step_expires(people: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    with_factor(people.alice)
    client = first_step()
    later = time.time() + 601
    monkeypatch.setattr("console.signon.flow.time.time", lambda: later)
    assert client.get("/login/code/").url == "/login/"


def test_code_form_needs_the_first_step(people: Cast) -> None:
    with_factor(people.alice)
    assert Client().post("/login/code/", {"code": code()}).url == "/login/"


def test_secrets_are_encrypted_in_the_row(people: Cast) -> None:
    codes = with_factor(people.alice)
    row = str(vars(Factor.objects.get()))
    assert SECRET not in row
    assert codes[0] not in row
    # Sealed for its person: in another's row it opens nothing.
    Factor.objects.update(user=people.charlie)
    assert totp.use_code(people.charlie, code()) == ""


def test_second_factor_is_set_up_and_disabled(people: Cast) -> None:
    client, elsewhere = client_of(people.alice), client_of(people.alice)
    page = client.get("/profile/security/factor/").content.decode()
    (shown,) = re.findall(r"<code[^>]*>([A-Z2-7 ]+)</code>", page)
    secret = re.sub(r"\s", "", shown)
    assert "<svg" in page
    wrong = client.post("/profile/security/factor/", {"code": "000000"})
    assert wrong.status_code == 400
    right = client.post("/profile/security/factor/", {"code": code(0, secret)})
    listed = right.content.decode().partition("<pre")[2].partition("</pre>")[0]
    shown = re.findall(r"\b[a-z2-9]{5}-[a-z2-9]{5}\b", listed)
    assert len(shown) == 10
    assert "no-store" in right.headers["Cache-Control"]
    assert not inside(elsewhere)
    assert totp.is_on(people.alice)
    assert shown[0] not in client.get("/profile/security/").content.decode()
    new = client.post("/profile/security/recovery/").content.decode()
    assert shown[0] not in new
    assert totp.use_code(people.alice, shown[0]) == ""
    client.post("/profile/security/factor/off/")
    assert not totp.is_on(people.alice)
    verbs = AuditEvent.objects.filter(target="user/alice").values_list("verb", flat=True)
    assert {"user.factor.on", "user.factor.recovery_codes", "user.factor.off"} <= set(verbs)
    trail = str(list(AuditEvent.objects.values()))
    assert secret not in trail
    assert shown[0] not in trail


def demand(settings: Settings, whom: str) -> None:
    settings.SIGNON = replace(settings.SIGNON, second_factor=whom)


def test_admin_without_a_required_second_factor_is_redirected(
    people: Cast, settings: Settings
) -> None:
    demand(settings, "admins")
    client = client_of(people.ada)
    for path in ("/", "/audit/", "/profile/", "/access/"):
        assert client.get(path).url == "/profile/security/factor/"
    answer = client.get("/api/v1/me/")
    assert (answer.status_code, answer.json()["code"]) == (403, "second_factor_needed")
    part = client.get("/", headers={"HX-Request": "true"})
    assert part.headers["HX-Redirect"] == "/profile/security/factor/"
    # A header which only looks like a token's does not help.
    odd = client.get("/api/v1/me/", headers={"Authorization": "Basic eDp5"})
    assert odd.status_code in (401, 403)
    assert client.get("/profile/security/").status_code == 200
    with override_settings(WHITENOISE_USE_FINDERS=True):
        assert client_of(people.ada).get("/static/console/favicon.svg").status_code == 200
    assert client.post("/logout/").status_code == 302
    with_factor(people.ada)
    assert client_of(people.ada).get("/profile/").status_code == 200
    assert client_of(people.alice).get("/profile/").status_code == 200


def test_second_factor_can_be_required_for_all(people: Cast, settings: Settings) -> None:
    demand(settings, "everybody")
    assert client_of(people.charlie).get("/profile/").status_code == 302


def test_admin_resets_a_lost_second_factor(people: Cast) -> None:
    with_factor(people.alice)
    path = f"/access/{people.alice.pk}/factor/reset/"
    assert client_of(people.charlie).post(path).status_code == 403
    assert totp.is_on(people.alice)
    session = client_of(people.alice)
    page = client_of(people.ada).get("/access/").content.decode()
    assert page.count("Reset second factor") == 1
    assert page.count(">2FA<") == 1
    client_of(people.ada).post(path)
    assert not totp.is_on(people.alice)
    assert not inside(session)
    event = AuditEvent.objects.get(verb="user.factor.reset")
    assert (event.actor, event.target) == (people.ada, "user/alice")


def test_local_command_resets_a_second_factor(people: Cast, capsys: Any) -> None:
    from django.core.management import call_command

    with_factor(people.ada)
    call_command("emberline_admin", "--reset", "--username", "ada")
    assert not totp.is_on(people.ada)
    assert "second factor" in capsys.readouterr().out
