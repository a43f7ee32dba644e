"""Single sign-on at a real provider over HTTP, including forged responses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client
from pytest_django.fixtures import Settings
from werkzeug.wrappers import Response

from console.accounts.models import Membership, MembershipSource, Team, User
from console.audit.models import AuditEvent
from console.signon.core.configuration import Provider
from console.signon.models import Identity, Session
from tests.support.oidc import OpenIdProvider, begin, running, sign_on
from tests.support.people import PASSWORD, Cast, client_of

pytestmark = pytest.mark.django_db
ROLES = {"admin": ("bosses",), "operator": ("ops",), "viewer": ("staff",)}
TEAMS = {"search": {"operator": ("search",), "viewer": ("everyone",)}}


@pytest.fixture(scope="module")
def served() -> Iterator[OpenIdProvider]:
    with running() as provider:
        yield provider


@pytest.fixture
def idp(served: OpenIdProvider, settings: Settings) -> OpenIdProvider:
    served.calm()
    settings.OIDC_PROVIDERS = (
        Provider("acme", "ACME", served.url, "emberline", "s3cret", roles=ROLES, teams=TEAMS),
    )
    served.person("sub-eve", preferred_username="eve", groups=["staff"])
    return served


def configure(settings: Settings, **facts: Any) -> None:
    settings.OIDC_PROVIDERS = (replace(settings.OIDC_PROVIDERS[0], **facts),)


def eve() -> User:
    return User.objects.get(username="eve")


def reasons() -> list[str]:
    events = AuditEvent.objects.filter(verb="user.login.refused").order_by("pk")
    return [str(event.changes["reason"]) for event in events]


def text(response: Any) -> str:
    return str(response.content.decode())


def test_first_sign_on_creates_an_account_with_the_group_role(idp: OpenIdProvider) -> None:
    client = Client()
    answer = sign_on(client, idp, "sub-eve", next="/audit/")
    assert (answer.status_code, answer.url) == (302, "/audit/")
    assert client.get("/profile/").status_code == 200
    assert (eve().role, eve().has_usable_password()) == ("viewer", False)
    identity = Identity.objects.get()
    assert (identity.user, identity.subject, identity.leads) == (eve(), "sub-eve", True)
    assert Session.objects.get(user=eve()).method == "with ACME"
    events = AuditEvent.objects.order_by("pk").values_list("verb", flat=True)
    assert list(events) == ["user.create", "user.login"]


def test_authorization_request_parameters(idp: OpenIdProvider) -> None:
    url = begin(Client(), next="https://evil.example/")
    idp.authorize(url, "sub-eve")
    requested = idp.token_requests[-1]
    assert requested["redirect_uri"] == "http://testserver/login/with/acme/back/"
    assert requested["code_challenge_method"] == "S256"
    assert min(len(requested[name]) for name in ("state", "nonce", "code_challenge")) >= 16
    assert set(requested["scope"].split()) == {"openid", "profile", "email"}
    assert "s3cret" not in url


def test_next_stays_in_the_console(idp: OpenIdProvider) -> None:
    assert sign_on(Client(), idp, "sub-eve", next="https://evil.example/").url == "/"


def test_role_and_teams_follow_the_groups_at_each_sign_on(idp: OpenIdProvider) -> None:
    team = Team.objects.create(name="Search", slug="search")
    sign_on(Client(), idp, "sub-eve")
    for groups, role, in_team in (
        (["staff", "everyone"], "viewer", "viewer"),
        (["ops", "search"], "operator", "operator"),
        (["search"], "member", "operator"),
        (["bosses"], "admin", None),
    ):
        User.objects.get_or_create(username="root", role="admin")
        idp.person("sub-eve", preferred_username="eve", groups=groups)
        assert sign_on(Client(), idp, "sub-eve").status_code == 302
        membership = Membership.objects.filter(team=team, user=eve()).first()
        assert eve().role == role
        assert (membership.role if membership else None) == in_team
        assert membership is None or membership.source == MembershipSource.OIDC
    assert AuditEvent.objects.filter(verb="user.role", target="user/eve").count() == 3


def test_removal_from_all_groups_ends_sessions_and_permissions(idp: OpenIdProvider) -> None:
    inside = Client()
    sign_on(inside, idp, "sub-eve")
    idp.person("sub-eve", preferred_username="eve", groups=["another"])
    answer = sign_on(Client(), idp, "sub-eve")
    assert answer.status_code == 403
    assert "None of your groups" in text(answer)
    assert eve().role == "member"
    assert inside.get("/profile/").status_code == 302
    assert reasons() == ["no group"]


def test_user_without_a_group_gets_no_account(idp: OpenIdProvider) -> None:
    for claims in (
        {},
        {"groups": "nonsense"},
        {"groups": {"staff": True}},
        {"groups": [["staff"]]},
    ):
        idp.person("sub-x", preferred_username="x", **claims)
        assert sign_on(Client(), idp, "sub-x").status_code == 403
    assert not User.objects.filter(username="x").exists()


def test_manual_membership_stays(idp: OpenIdProvider) -> None:
    sign_on(Client(), idp, "sub-eve")
    team = Team.objects.create(name="Search", slug="search")
    Membership.objects.create(team=team, user=eve(), role="admin")
    sign_on(Client(), idp, "sub-eve")
    assert Membership.objects.get().role == "admin"


def test_membership_ends_with_its_mapping(idp: OpenIdProvider, settings: Settings) -> None:
    Team.objects.create(name="Search", slug="search")
    idp.person("sub-eve", preferred_username="eve", groups=["staff", "search"])
    sign_on(Client(), idp, "sub-eve")
    assert Membership.objects.get().role == "operator"
    configure(settings, teams={})
    sign_on(Client(), idp, "sub-eve")
    assert not Membership.objects.exists()


def test_groups_do_not_remove_the_last_admin(idp: OpenIdProvider) -> None:
    idp.person("sub-eve", preferred_username="eve", groups=["bosses"])
    sign_on(Client(), idp, "sub-eve")
    idp.person("sub-eve", preferred_username="eve", groups=["staff"])
    sign_on(Client(), idp, "sub-eve")
    assert eve().role == "admin"
    assert AuditEvent.objects.filter(verb="user.role.kept").count() == 1


def test_taken_name_or_address_gives_no_access(idp: OpenIdProvider, people: Cast) -> None:
    people.ada.email = "ada@example.com"
    people.ada.save()
    idp.person(
        "sub-m",
        preferred_username="ADA",
        email="ada@example.com",
        email_verified=True,
        groups=["bosses"],
    )
    client = Client()
    answer = sign_on(client, idp, "sub-m")
    assert answer.status_code == 403
    assert "is already in use" in text(answer)
    assert client.get("/profile/").status_code == 302
    assert not Identity.objects.exists()


def test_equal_name_of_another_subject_is_another_user(idp: OpenIdProvider) -> None:
    sign_on(Client(), idp, "sub-eve")
    idp.person("sub-other", preferred_username="eve", groups=["bosses"])
    assert sign_on(Client(), idp, "sub-other").status_code == 403
    assert eve().role == "viewer"


def test_existing_user_links_an_account_and_keeps_the_role(
    idp: OpenIdProvider, people: Cast
) -> None:
    client = client_of(people.alice)
    back = idp.authorize(begin(client, "/profile/security/link/acme/"), "sub-eve")
    assert client.get(back).url == "/profile/security/"
    answer = sign_on(Client(), idp, "sub-eve")
    assert answer.status_code == 302
    people.alice.refresh_from_db()
    assert people.alice.role == "operator"
    assert Session.objects.filter(user=people.alice, method="with ACME").exists()
    # That account is linked to her; no other login can take it over.
    other = client_of(people.charlie)
    other.get(idp.authorize(begin(other, "/profile/security/link/acme/"), "sub-eve"))
    assert Identity.objects.get().user == people.alice


def test_linking_is_limited_to_its_initiator(idp: OpenIdProvider, people: Cast) -> None:
    client = client_of(people.alice)
    back = idp.authorize(begin(client, "/profile/security/link/acme/"), "sub-eve")
    client.force_login(people.charlie)
    assert client.get(back).status_code == 403
    assert not Identity.objects.exists()


def test_only_additional_logins_can_be_unlinked(idp: OpenIdProvider) -> None:
    client = Client()
    sign_on(client, idp, "sub-eve")
    path = f"/profile/security/unlink/{Identity.objects.get().pk}/"
    client.post(path)
    assert Identity.objects.exists()
    user = eve()
    user.set_password(PASSWORD)
    user.save()
    client_of(user).post(path)
    assert not Identity.objects.exists()


def test_deactivated_account_stays_deactivated(idp: OpenIdProvider) -> None:
    sign_on(Client(), idp, "sub-eve")
    User.objects.filter(username="eve").update(is_active=False)
    assert "deactivated" in text(sign_on(Client(), idp, "sub-eve"))
    assert reasons() == ["inactive"]


def test_account_creation_can_be_disabled(idp: OpenIdProvider, settings: Settings) -> None:
    configure(settings, new_people=False)
    assert sign_on(Client(), idp, "sub-eve").status_code == 403
    assert not User.objects.exists()


# Parameters an attacker could change.


def test_response_is_valid_once_in_its_browser(idp: OpenIdProvider) -> None:
    client = Client()
    back = idp.authorize(begin(client), "sub-eve")
    assert Client().get(back).status_code == 403  # planted in a victim's browser
    assert client.get(back.replace("state=", "state=x")).status_code == 403
    assert client.get(back).status_code == 302
    client.post("/logout/")
    assert client.get(back).status_code == 403  # replayed
    assert all("state" in reason for reason in reasons())


def test_code_of_another_attempt_is_rejected(idp: OpenIdProvider) -> None:
    """Stolen elsewhere and put into one's own attempt: PKCE does not match."""
    theirs, mine = Client(), Client()
    stolen = idp.authorize(begin(theirs), "sub-eve")
    own = idp.authorize(begin(mine), "sub-x")
    code = dict(part.split("=") for part in urlsplit(stolen).query.split("&"))["code"]
    mixed = "&".join(
        f"code={code}" if part.startswith("code=") else part
        for part in urlsplit(own).query.split("&")
    )
    assert mine.get(f"/login/with/acme/back/?{mixed}").status_code == 403
    assert reasons() == ["the provider rejected the code (OAuth2Error)"]


STRANGE_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.mark.parametrize(
    "bend",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"iss": "https://evil.example"},
        {"aud": "another-client"},
        {"aud": ["emberline", "another-client"]},
        {"exp": 1},
        {"sub": None},
        {"sub": "sub-admin"},  # userinfo has the subject sub-eve
    ],
    ids=str,
)
def test_token_with_an_invalid_claim_is_rejected(idp: OpenIdProvider, bend: dict[str, Any]) -> None:
    def forge(claims: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in {**claims, **bend}.items() if value is not None}

    idp.forge = forge
    assert sign_on(Client(), idp, "sub-eve").status_code == 403
    assert not User.objects.exists()
    assert len(reasons()) == 1


def test_token_with_an_invalid_signature_is_rejected(idp: OpenIdProvider) -> None:
    for signed in (
        lambda c: jwt.encode(c, STRANGE_KEY, algorithm="RS256", headers={"kid": "front"}),
        lambda c: jwt.encode(c, STRANGE_KEY, algorithm="RS256", headers={"kid": "other"}),
        lambda c: jwt.encode(c, None, algorithm="none", headers={"kid": "front"}),
        lambda c: jwt.encode(c, "s3cret" * 8, algorithm="HS256", headers={"kid": "front"}),
        lambda c: "not.a.token",
        lambda c: None,
    ):
        idp.signed = signed
        assert sign_on(Client(), idp, "sub-eve").status_code == 403
    assert not User.objects.exists()


def test_metadata_of_another_issuer_is_rejected(idp: OpenIdProvider) -> None:
    page = "/.well-known/openid-configuration"
    idp.documents[page] = lambda found: {**found, "issuer": "https://evil.example"}
    answer = Client().post("/login/with/acme/")
    assert answer.status_code == 502
    assert "another issuer" in text(answer)
    idp.documents[page] = lambda found: {**found, "token_endpoint": "http://evil.example/"}
    assert Client().post("/login/with/acme/").status_code == 502


def test_unreachable_provider_is_reported_on_the_login_page(
    idp: OpenIdProvider, settings: Settings
) -> None:
    configure(settings, issuer="http://127.0.0.1:9")
    answer = Client().post("/login/with/acme/")
    assert answer.status_code == 502
    assert "ACME is not reachable" in text(answer)
    assert 'name="password"' in text(answer)


@pytest.mark.parametrize("path", ["/oauth2/token", "/jwks", "/userinfo"])
@pytest.mark.parametrize("status", [500, 200])
def test_provider_that_fails_during_the_callback(
    idp: OpenIdProvider, path: str, status: int
) -> None:
    client = Client()
    back = idp.authorize(begin(client), "sub-eve")
    idp.broken[path] = Response("<html>", status, mimetype="text/html")
    assert client.get(back).status_code in (403, 502)
    assert not User.objects.exists()


def test_denied_consent_is_reported(idp: OpenIdProvider) -> None:
    client = Client()
    url = begin(client)
    state = dict(part.split("=") for part in urlsplit(url).query.split("&"))["state"]
    answer = client.get(f"/login/with/acme/back/?error=access_denied&state={state}")
    assert "Sign-on at ACME was cancelled" in text(answer)


def test_logout_links_to_the_provider_logout(idp: OpenIdProvider) -> None:
    client = Client()
    sign_on(client, idp, "sub-eve")
    page = text(client.post("/logout/"))
    assert f"{idp.url}/oauth2/end_session?client_id=emberline" in page
    assert client.get("/profile/").status_code == 302


def test_no_secret_is_audited_or_stored(idp: OpenIdProvider) -> None:
    sign_on(Client(), idp, "sub-eve")
    rows = str([vars(row) for row in (*AuditEvent.objects.all(), *Identity.objects.all())])
    assert "s3cret" not in rows
    session = Session.objects.get(user=eve())
    assert "code_verifier" not in str(session.get_decoded())


def test_unknown_provider_is_404(idp: OpenIdProvider) -> None:
    assert Client().post("/login/with/other/").status_code == 404
    assert Client().get("/login/with/other/back/").status_code == 404


def test_sign_on_starts_with_a_post(idp: OpenIdProvider) -> None:
    """A foreign link must not log a user in under an account of the provider."""
    assert Client().get("/login/with/acme/").status_code == 405
    assert Client(enforce_csrf_checks=True).post("/login/with/acme/").status_code == 403
