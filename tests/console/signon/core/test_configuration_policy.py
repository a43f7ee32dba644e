"""Password login for break-glass admins only, the admin page, and own sessions."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django.fixtures import Settings

from console.accounts.models import Team, User
from console.audit.models import AuditEvent
from console.signon import oidc
from console.signon.core.configuration import Provider
from console.signon.models import Session
from tests.support.people import PASSWORD, Cast, client_of
from tests.support.query_counts import check

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).with_name("query_counts.json")
ACME = Provider(
    "acme", "ACME", "http://127.0.0.1:9", "emberline", "s3cret",
    roles={"admin": ("bosses",)}, teams={"search": {"viewer": ("all",)}},
)  # fmt: skip


def log_in(name: str, password: str = PASSWORD) -> Client:
    client = Client()
    client.post("/login/", {"username": name, "password": password})
    return client


@pytest.fixture
def break_glass(settings: Settings) -> None:
    settings.SIGNON = replace(settings.SIGNON, local_login="break-glass", break_glass=("ada",))
    settings.OIDC_PROVIDERS = (ACME,)


@pytest.mark.usefixtures("break_glass")
def test_password_login_is_limited_to_named_users(people: Cast) -> None:
    assert log_in("alice").get("/profile/").status_code == 302
    assert log_in("ada").get("/profile/").status_code == 200
    event = AuditEvent.objects.get(verb="user.login.refused")
    assert (event.target, event.changes["reason"]) == ("user/alice", "password login is disabled")
    assert AuditEvent.objects.get(verb="user.login.break_glass").actor == people.ada


@pytest.mark.usefixtures("break_glass")
def test_response_does_not_reveal_a_correct_password(people: Cast) -> None:
    forms = [{"username": "alice", "password": word} for word in (PASSWORD, "nope")]
    right, wrong = (Client().post("/login/", form).content.decode() for form in forms)
    sentence = "User name and password do not match an active account."
    assert sentence in right
    assert sentence in wrong


@pytest.mark.usefixtures("break_glass")
def test_login_page_offers_providers_first() -> None:
    page = Client().get("/login/?next=/audit/").content.decode()
    assert "Sign on with ACME" in page
    assert page.index("Sign on with ACME") < page.index("Break-glass login")
    assert page.count('name="next" value="/audit/"') == 2


def test_admin_page_shows_mapping_and_errors(people: Cast, settings: Settings) -> None:
    settings.SIGNON = replace(settings.SIGNON, break_glass=("ada", "alice", "ghost"))
    settings.OIDC_PROVIDERS = (ACME,)
    page = client_of(people.ada).get("/sign-on/").content.decode()
    for words in ("bosses", "http://testserver/login/with/acme/back/", "not an active admin",
                  "account does not exist", "do not exist: search", "by environment"):  # fmt: skip
        assert words in page
    assert "s3cret" not in page
    assert client_of(people.alice).get("/sign-on/").status_code == 403


def test_settings_page_has_a_summary(people: Cast, settings: Settings) -> None:
    settings.OIDC_PROVIDERS = (ACME,)
    page = client_of(people.ada).get("/settings/").content.decode()
    assert "Groups and policy" in page
    assert "all users" in page
    assert "Groups and policy" not in client_of(people.alice).get("/settings/").content.decode()


def test_admin_tests_a_provider(people: Cast, settings: Settings) -> None:
    settings.OIDC_PROVIDERS = (ACME,)
    client = client_of(people.ada)
    page = client.post("/sign-on/acme/test/", follow=True).content.decode()
    assert "ACME is not usable" in page
    assert client.post("/sign-on/other/test/").status_code == 404


def test_secret_can_be_stored_in_the_vault(db: None) -> None:
    bare = replace(ACME, secret="")
    assert oidc.secret_source(bare) == "none (public client)"
    oidc.store_secret("acme", "sealed-away")
    assert oidc.client_secret(bare) == "sealed-away"
    assert oidc.secret_source(bare) == "vault"
    oidc.delete_secret("acme")
    assert oidc.client_secret(bare) == ""


def test_own_sessions_are_listed_without_those_of_others(people: Cast) -> None:
    client, other = log_in("alice"), log_in("alice")
    foreign = Session.objects.get(pk=_key(client_of(people.charlie)))
    page = client.get("/profile/security/").content.decode()
    assert page.count("/end/") == 3
    assert client.post(f"/profile/security/sessions/{foreign.pk}/end/").status_code == 404
    client.post(f"/profile/security/sessions/{_key(other)}/end/")
    assert other.get("/profile/").status_code == 302
    third = log_in("alice")
    client.post("/profile/security/sessions/end/")
    assert third.get("/profile/").status_code == 302
    assert client.get("/profile/").status_code == 200
    assert Session.objects.filter(pk=foreign.pk).exists()
    client.post(f"/profile/security/sessions/{_key(client)}/end/")
    assert client.get("/profile/").status_code == 302


def test_new_password_ends_the_other_sessions(people: Cast) -> None:
    client, other = log_in("alice"), log_in("alice")
    new = "battery-staple-9"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    for bad in ("short", "qwertyuiop", "12345678901", "password123"):
        refused = {**form, "new_password1": bad, "new_password2": bad}
        assert client.post("/profile/security/", refused).status_code == 400
    same = {**form, "new_password1": PASSWORD, "new_password2": PASSWORD}
    assert client.post("/profile/security/", same).status_code == 400
    assert client.post("/profile/security/", form).status_code == 302
    assert client.get("/profile/").status_code == 200
    assert Session.objects.filter(user=people.alice).count() == 1
    assert other.get("/profile/").status_code == 302


def test_single_sign_on_user_has_no_password_form(people: Cast) -> None:
    people.alice.set_unusable_password()
    people.alice.save()
    assert "old_password" not in client_of(people.alice).get("/profile/security/").content.decode()


def test_admin_ends_all_sessions_of_a_user(people: Cast) -> None:
    client = log_in("alice")
    client_of(people.ada).post(f"/access/{people.alice.pk}/sessions/end/")
    assert client.get("/profile/").status_code == 302


@pytest.mark.parametrize("url", ["/profile/security/", "/sign-on/"])
def test_number_of_queries_is_constant(people: Cast, settings: Settings, url: str) -> None:
    settings.OIDC_PROVIDERS = (ACME,)
    for number in range(5):
        client_of(people.ada)
        Team.objects.create(name=f"t{number}", slug=f"t{number}")
        User.objects.create(username=f"u{number}", role="admin")
    check(client_of(people.ada), url, KEPT)


def _key(client: Client) -> str:
    from django.conf import settings

    from console.signon.models import digest

    return digest(client.cookies[settings.SESSION_COOKIE_NAME].value)


def test_command_reads_a_secret_from_standard_input(
    db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OIDC_PROVIDERS = (replace(ACME, secret=""),)
    monkeypatch.setattr("sys.stdin", StringIO("from-a-pipe\n"))
    call_command("emberline_signon", "--secret", "acme")
    assert oidc.client_secret(settings.OIDC_PROVIDERS[0]) == "from-a-pipe"
    assert "from-a-pipe" not in str(list(AuditEvent.objects.values()))
    with pytest.raises(CommandError, match="there are: acme"):
        call_command("emberline_signon", "--secret", "other")
    with pytest.raises(CommandError, match="is empty"):
        call_command("emberline_signon", "--secret", "acme")
    call_command("emberline_signon", "--forget", "acme")
    assert oidc.client_secret(settings.OIDC_PROVIDERS[0]) == ""
