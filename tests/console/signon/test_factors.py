"""Second factor: single use, encryption, policy and reset."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from django.core.cache import cache
from django.test import Client, RequestFactory, override_settings
from pytest_django.fixtures import Settings

from console.accounts.models import User
from console.audit.models import AuditEvent
from console.signon import factors
from console.signon.models import Session
from console.signon.pages.forms import PasskeyLoginForm
from tests.support.people import PASSWORD, Cast, client_of
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # "12345678901234567890", as in RFC 6238


def code(off: int = 0, secret: str = SECRET) -> str:
    if off < 0:  # valid as long as its step is not two behind
        until(lambda: time.time() % 30 < 25)
    return factors.current_code(secret, int(time.time()) // 30 + off)


def with_factor(user: User) -> list[str]:
    """Turned on without spending a code."""
    Authenticator.objects.create(
        user=user,
        type=Authenticator.Type.TOTP,
        data={"secret": factors.FactorAdapter().encrypt(SECRET)},
    )
    return list(RecoveryCodes.activate(user).get_unused_codes())


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
    assert factors.current_code(SECRET, at // 30) == shown


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
    cache.clear()  # as in another process
    again = first_step()
    assert again.post("/login/code/", {"code": now}).status_code == 200
    assert not inside(again)
    event = AuditEvent.objects.get(verb="user.login.refused")
    assert (event.changes["reason"], event.target) == ("second factor", "user/alice")


def test_earlier_code_is_invalid_after_a_later_one(people: Cast) -> None:
    with_factor(people.alice)
    assert factors.use_code(people.alice, code(1))
    assert factors.use_code(people.alice, code(0)) is None


@pytest.mark.parametrize("typed", ["", "000000", "12345", "１２３４５６", "x" * 40, "\x00"])
def test_malformed_code_is_invalid(people: Cast, typed: str) -> None:
    with_factor(people.alice)
    client = first_step()
    assert client.post("/login/code/", {"code": typed}).status_code == 200
    assert not inside(client)


def test_recovery_code_is_valid_once(people: Cast) -> None:
    codes = with_factor(people.alice)
    assert len(set(codes)) == 10
    assert (
        first_step().post("/login/code/", {"code": f" {codes[0][:5]} {codes[0][5:]} "}).status_code
        == 302
    )
    assert first_step().post("/login/code/", {"code": codes[0]}).status_code == 200
    page = client_of(people.alice).get("/profile/security/").content.decode()
    assert "9 unused codes left" in page


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
    monkeypatch.setattr("allauth.account.internal.stagekit.time.time", lambda: later)
    assert client.get("/login/code/").url == "/login/"


def test_code_form_needs_the_first_step(people: Cast) -> None:
    with_factor(people.alice)
    assert Client().post("/login/code/", {"code": code()}).url == "/login/"


def test_secrets_are_encrypted_in_the_row(people: Cast) -> None:
    codes = with_factor(people.alice)
    rows = str([vars(row) for row in Authenticator.objects.all()])
    assert SECRET not in rows
    assert codes[0] not in rows


def test_undecryptable_factor_rejects_every_code(people: Cast, settings: Settings) -> None:
    codes = with_factor(people.alice)
    settings.EMBERLINE = replace(settings.EMBERLINE, encryption_keys=("n" * 32,))
    empty = factors.current_code("", int(time.time()) // 30)
    for typed in (code(), codes[0], empty):
        client = first_step()
        assert client.post("/login/code/", {"code": typed}).status_code == 200
        assert not inside(client)


def _listed(page: Any) -> list[str]:
    return page.content.decode().partition("<pre")[2].partition("</pre>")[0].split()[-10:]


def test_second_factor_is_set_up_and_disabled(people: Cast) -> None:
    client, elsewhere = client_of(people.alice), client_of(people.alice)
    page = client.get("/profile/security/factor/").content.decode()
    (shown,) = re.findall(r"<code[^>]*>([A-Z2-7 ]+)</code>", page)
    secret = re.sub(r"\s", "", shown)
    assert "<svg" in page
    assert secret not in str(dict(client.session.items()))
    wrong = client.post("/profile/security/factor/", {"code": "000000"})
    assert "Invalid or already used code" in wrong.content.decode()
    typed = code(0, secret)
    right = client.post("/profile/security/factor/", {"code": typed}, follow=True)
    shown = _listed(right)
    assert len(shown) == 10
    assert "no-store" in right.headers["Cache-Control"]
    assert not inside(elsewhere)
    assert factors.is_on(people.alice)
    assert factors.use_code(people.alice, typed) is None
    assert shown[0] not in client.get("/profile/security/recovery/").content.decode()
    new = _listed(client.post("/profile/security/recovery/new/", follow=True))
    assert not set(shown) & set(new)
    assert factors.use_code(people.alice, shown[0]) is None
    client.post("/profile/security/factor/off/")
    assert not factors.is_on(people.alice)
    assert not Authenticator.objects.exists()
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
    assert factors.is_on(people.alice)
    session = client_of(people.alice)
    page = client_of(people.ada).get("/access/").content.decode()
    assert page.count("Reset second factor") == 1
    assert page.count(">2FA<") == 1
    client_of(people.ada).post(path)
    assert not factors.is_on(people.alice)
    assert not inside(session)
    event = AuditEvent.objects.get(verb="user.factor.reset")
    assert (event.actor, event.target) == (people.ada, "user/alice")


def test_local_command_resets_a_second_factor(people: Cast, capsys: Any) -> None:
    from django.core.management import call_command

    with_factor(people.ada)
    call_command("emberline_admin", "--reset", "--username", "ada")
    assert not factors.is_on(people.ada)
    assert "second factor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("host", "secure", "usable"),
    [
        ("localhost:8000", False, True),
        ("127.0.0.1:8000", False, False),
        ("[::1]:8000", True, False),
        ("emberline.example", False, False),
        ("emberline.example", True, True),
    ],
)
def test_passkeys_need_a_domain_with_tls(
    settings: Settings, host: str, secure: bool, usable: bool
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    request = RequestFactory(HTTP_HOST=host).get("/", secure=secure)
    assert factors.are_passkeys_usable(request) is usable


def test_passkey_logs_in_break_glass_admins_only(
    people: Cast, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNON = replace(
        settings.SIGNON, local_login="break-glass", break_glass=("ada", "dora")
    )
    for user, allowed in ((people.alice, False), (people.dora, False), (people.ada, True)):
        row = Authenticator(user=user, type=Authenticator.Type.WEBAUTHN, data={"name": "x"})
        row.save()
        monkeypatch.setattr(PasskeyLoginForm, "clean_credential", lambda _form, row=row: row)
        client = Client()
        client.post("/login/passkey/", {"credential": "[1]"})
        assert inside(client) is allowed
    assert AuditEvent.objects.get(verb="user.login.break_glass").actor == people.ada


CREDENTIALS = (
    "", "null", "5", "[]", '"x"', "{}", "{", '{"response": 5}', '{"response": {"userHandle": 5}}',
    '{"response": {"userHandle": "MQ"}}', '{"id": "x", "rawId": "x", "type": "public-key",'
    ' "response": {"authenticatorData": "x", "clientDataJSON": "x", "signature": "x",'
    ' "userHandle": "MQ"}}',
)  # fmt: skip


@pytest.mark.parametrize("credential", CREDENTIALS)
def test_malformed_passkey_is_rejected(people: Cast, credential: str) -> None:
    with_factor(people.alice)
    client = first_step()
    client.raise_request_exception = False
    form = {"credential": credential}
    assert client.post("/login/code/", form).status_code == 200
    assert client.post("/login/passkey/", form).status_code in (200, 302)
    assert not inside(client)
    client = client_of(people.charlie)
    assert client.post("/profile/security/passkey/", form).status_code == 200
    again = {"again_passkey": credential or "x", "to": "/profile/tokens/"}
    assert client.post("/login/again/", again).status_code == 200
    assert not factors.is_on(people.charlie)


def test_recovery_codes_need_a_factor(people: Cast) -> None:
    client = client_of(people.alice)
    page = client.post("/profile/security/recovery/new/", follow=True).content.decode()
    assert "Set up an authenticator app or a passkey first." in page
    assert not Authenticator.objects.exists()
