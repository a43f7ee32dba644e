"""Sessions and API tokens that end with changes of login or permissions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from console.accounts import credentials
from console.accounts.models import Membership, MembershipSource, Team, User
from console.accounts.permissions import allows
from console.audit.models import AuditEvent
from console.people import actions, team_actions, token_actions
from console.signon import factors, oidc
from console.signon import provider_users as people
from console.signon.core.configuration import Provider
from console.signon.models import Identity
from tests.console.signon.test_factors import code, with_factor
from tests.support.people import PASSWORD, Cast, client_of

pytestmark = pytest.mark.django_db
ACME = Provider(
    "acme", "ACME", "https://id.example.com", "emberline",
    roles={"operator": ("ops",)}, teams={"search": {"operator": ("ops",)}},
)  # fmt: skip


@dataclass
class Access:
    """Alice with a session, a second one, and two tokens."""

    ada: User
    alice: User
    own: Client
    other: Client
    everywhere: str
    in_team: str

    def alive(self) -> tuple[bool, bool, str, str]:
        """The own session, the other one, and what each token may do."""
        return (_inside(self.own), _inside(self.other), _role(self.everywhere), _role(self.in_team))


def _inside(client: Client) -> bool:
    return client.get("/profile/").status_code == 200


def _role(clear: str) -> str:
    """As the API sees the token, "" when it is not let in."""
    found = credentials.find_token(clear)
    if found is None:
        return ""
    found.user.role_cap, found.user.team_cap = found.role, found.team_id
    roles = [role for role in ("viewer", "operator") if allows(found.user, role, of=found.team)]
    return roles[-1] if roles else "nothing"


def _log_in(name: str, password: str = PASSWORD) -> Client:
    client = Client()
    client.post("/login/", {"username": name, "password": password})
    return client


@pytest.fixture
def access(people: Cast, settings: Settings) -> Access:
    settings.OIDC_PROVIDERS = (ACME,)
    team = Team.objects.create(name="Search", slug="search")
    Membership.objects.create(team=team, user=people.alice, role="operator")
    make = token_actions.create_token
    return Access(
        people.ada,
        people.alice,
        _log_in("alice"),
        _log_in("alice"),
        make(people.alice, "ci", "operator")[1],
        make(people.alice, "team", "operator", team="search")[1],
    )


def _changed_own(revoke: bool) -> Callable[[Access], None]:
    def change(access: Access) -> None:
        fields = {"old_password": PASSWORD, "new_password1": "another-9-horse",
                  "new_password2": "another-9-horse"}  # fmt: skip
        more = {"revoke_tokens": "on"} if revoke else {}
        answer = access.own.post("/profile/security/", {**fields, **more}, follow=True)
        assert "Password changed." in answer.content.decode()

    return change


def _reactivated(access: Access) -> None:
    actions.set_active(access.ada, access.alice, False)
    actions.set_active(access.ada, access.alice, True)


def _demoted_and_promoted(access: Access) -> None:
    team_actions.remove_member(access.ada, "search", "alice")
    actions.set_role(access.ada, access.alice, "viewer")
    actions.set_role(access.ada, access.alice, "operator")


def _left_and_came_back(access: Access) -> None:
    actions.set_role(access.ada, access.alice, "member")
    team_actions.remove_member(access.ada, "search", "alice")
    team_actions.set_member(access.ada, "search", "alice", "operator")


def _team_deleted(access: Access) -> None:
    actions.set_role(access.ada, access.alice, "member")
    team_actions.delete(access.ada, "search")


def _factor_reset(access: Access) -> None:
    with_factor(access.alice)
    client_of(access.ada).post(f"/access/{access.alice.pk}/factor/reset/")
    assert not factors.is_on(access.alice)


def _factor_off(access: Access) -> None:
    with_factor(access.alice)
    access.own.post("/profile/security/factor/off/")
    assert not factors.is_on(access.alice)


def _linked(access: Access, *, leads: bool) -> Identity:
    Membership.objects.update(source=MembershipSource.OIDC)
    return Identity.objects.create(
        user=access.alice, provider="acme", issuer=ACME.issuer, subject="s", leads=leads
    )


def _unlinked(leads: bool) -> Callable[[Access], None]:
    def unlink(access: Access) -> None:
        identity = _linked(access, leads=leads)
        access.own.post(f"/profile/security/unlink/{identity.pk}/")
        assert not Identity.objects.exists()
        assert not Membership.objects.exists()

    return unlink


def _no_group(access: Access) -> None:
    _linked(access, leads=True)
    with pytest.raises(people.SignOnRefused):
        people.resolve_user(oidc.ProviderUser(ACME, "s", {"sub": "s", "groups": []}, {}, ""))


@pytest.mark.parametrize(
    ("change", "alive"),
    [
        (lambda a: actions.reset_password(a.ada, a.alice), (False, False, "", "")),
        (_reactivated, (False, False, "", "")),
        (_changed_own(False), (True, False, "operator", "operator")),
        (_changed_own(True), (True, False, "", "")),
        (_demoted_and_promoted, (True, True, "viewer", "viewer")),
        (_left_and_came_back, (True, True, "", "")),
        (_team_deleted, (True, True, "", "")),
        (_factor_reset, (False, False, "operator", "operator")),
        (_factor_off, (True, False, "operator", "operator")),
        (_unlinked(False), (True, False, "operator", "operator")),
        (_unlinked(True), (True, False, "", "")),
        (_no_group, (False, False, "", "")),
    ],
)
def test_expiry_of_tokens(
    access: Access, change: Callable[[Access], None], alive: tuple[bool, bool, str, str]
) -> None:
    assert access.alive() == (True, True, "operator", "operator")
    change(access)
    assert access.alive() == alive


def test_each_revoked_token_is_audited_with_its_reason(access: Access) -> None:
    actions.reset_password(access.ada, access.alice)
    revoked = AuditEvent.objects.filter(verb="token.revoke", actor=access.ada)
    assert {(one.target, one.note) for one in revoked} == {
        ("user/alice/token/ci", "the password was reset"),
        ("user/alice/token/team", "the password was reset"),
    }
    reset = AuditEvent.objects.get(verb="user.password.reset")
    assert reset.changes == {"sessions_ended": 2, "tokens_revoked": 2}


def test_password_reset_ends_a_login_awaiting_its_code(access: Access) -> None:
    with_factor(access.alice)
    thief = _log_in("alice")
    actions.reset_password(access.ada, access.alice)
    thief.post("/login/code/", {"code": code()})
    assert not _inside(thief)
