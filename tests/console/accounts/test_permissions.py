from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client, RequestFactory
from django.utils import timezone

from console.accounts.gate import role_required
from console.accounts.models import ApiToken, User
from console.accounts.permissions import allows, require
from console.audit.models import AuditEvent
from console.people import actions, token_actions
from tests.support.people import PASSWORD, Cast, client_of

pytestmark = pytest.mark.django_db

SHOWN = re.compile(r'id="secret-once">([^<]+)<')


@pytest.mark.parametrize(
    ("name", "viewer", "operator", "admin"),
    [
        ("charlie", True, False, False),
        ("alice", True, True, False),
        ("ada", True, True, True),
        ("dora", False, False, False),
    ],
)
def test_roles(people: Cast, name: str, viewer: bool, operator: bool, admin: bool) -> None:
    user = getattr(people, name)
    assert [allows(user, role) for role in ("viewer", "operator", "admin")] == [
        viewer,
        operator,
        admin,
    ]


def test_require_role_names_the_missing_role(people: Cast) -> None:
    with pytest.raises(PermissionDenied, match="requires the operator role"):
        require(people.charlie, "operator")
    with pytest.raises(PermissionDenied):
        require(None, "viewer")
    require(people.alice, "operator")


def test_role_required_guards_a_view(people: Cast) -> None:
    guarded = role_required("admin")(lambda request: "in")

    request = RequestFactory().get("/")
    request.user = people.alice
    with pytest.raises(PermissionDenied):
        guarded(request)
    request.user = people.ada
    assert guarded(request) == "in"


@pytest.mark.parametrize(("name", "status"), [("charlie", 302), ("alice", 302), ("ada", 200)])
def test_user_list_needs_an_admin(people: Cast, name: str, status: int) -> None:
    """Others find the teams they may see."""
    assert client_of(getattr(people, name)).get("/access/").status_code == status


def test_new_user_gets_a_password_shown_once(people: Cast) -> None:
    client = client_of(people.ada)
    response = client.post("/access/", {"username": "erin", "role": "operator"})
    (password,) = SHOWN.findall(response.content.decode())
    assert "no-store" in response.headers["Cache-Control"]
    assert password not in client.get("/access/").content.decode()
    assert User.objects.get(username="erin").check_password(password)
    event = AuditEvent.objects.get(verb="user.create")
    assert (event.actor, event.target) == (people.ada, "user/erin")
    assert password not in str(event.changes)
    login = Client().post("/login/", {"username": "erin", "password": password})
    assert login.status_code == 302


def test_taken_name_is_rejected_at_the_field(people: Cast) -> None:
    response = client_of(people.ada).post("/access/", {"username": "ALICE", "role": "viewer"})
    assert response.status_code == 400
    assert "“ALICE” is already in use" in response.content.decode()
    assert User.objects.filter(username__iexact="alice").count() == 1


def test_role_change_and_deactivation(people: Cast) -> None:
    admin, alice = client_of(people.ada), client_of(people.alice)
    admin.post(f"/access/{people.alice.pk}/role/", {"role": "viewer"})
    people.alice.refresh_from_db()
    assert people.alice.role == "viewer"
    event = AuditEvent.objects.get(verb="user.role")
    assert event.changes == {"role": ["operator", "viewer"]}
    assert alice.get("/profile/").status_code == 200
    admin.post(f"/access/{people.alice.pk}/active/", {"active": "0"})
    assert alice.get("/profile/").status_code == 302  # logged out at once


def test_last_admin_is_kept(people: Cast) -> None:
    response = client_of(people.ada).post(
        f"/access/{people.ada.pk}/role/", {"role": "viewer"}, follow=True
    )
    assert "is the only active admin" in response.content.decode()
    with pytest.raises(ValidationError, match="deactivate your own account"):
        actions.set_active(people.ada, people.ada, False)
    people.ada.refresh_from_db()
    assert (people.ada.role, people.ada.is_active) == ("admin", True)


def test_unknown_role_is_rejected(people: Cast) -> None:
    response = client_of(people.ada).post(
        f"/access/{people.alice.pk}/role/", {"role": "emperor"}, follow=True
    )
    assert "Unknown role" in response.content.decode()


def test_password_reset_by_an_admin_ends_sessions(people: Cast) -> None:
    alice = client_of(people.alice)
    page = client_of(people.ada).post(f"/access/{people.alice.pk}/password/")
    (password,) = SHOWN.findall(page.content.decode())
    people.alice.refresh_from_db()
    assert people.alice.check_password(password)
    assert alice.get("/profile/").status_code == 302


def test_own_password_change_keeps_the_session(people: Cast) -> None:
    here, elsewhere = client_of(people.alice), client_of(people.alice)
    new = "quite-another-9"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert here.post("/profile/security/", form).status_code == 302
    assert here.get("/profile/").status_code == 200
    assert elsewhere.get("/profile/").status_code == 302
    assert AuditEvent.objects.filter(verb="user.password.change").exists()


def test_weak_password_is_rejected(people: Cast) -> None:
    form = {"old_password": PASSWORD, "new_password1": "short", "new_password2": "short"}
    response = client_of(people.alice).post("/profile/security/", form)
    assert response.status_code == 400
    assert "at least 10 characters" in response.content.decode()


def make_token(user: User, role: str = "viewer", **extra: object) -> str:
    return token_actions.create_token(user, f"t{ApiToken.objects.count()}", role, **extra)[1]


def test_token_is_shown_once_and_stored_as_a_hash(people: Cast) -> None:
    client = client_of(people.alice)
    form = {"name": "ci", "role": "operator", "days": "30"}
    response = client.post("/profile/tokens/", form)
    (clear,) = SHOWN.findall(response.content.decode())
    assert clear.startswith("emb_")
    assert "no-store" in response.headers["Cache-Control"]
    assert clear not in client.get("/profile/").content.decode()
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f'SELECT * FROM "{table}"')
            assert clear not in str(cursor.fetchall()), table
    token = ApiToken.objects.get()
    assert clear.startswith(token.prefix)
    assert len(token.prefix) < 12


def me(clear: str) -> object:
    return Client().get("/api/v1/me/", headers={"Authorization": f"Bearer {clear}"})


def test_token_authenticates_and_records_its_use(people: Cast) -> None:
    clear = make_token(people.alice, "operator")
    answer = me(clear)
    assert answer.json() == {"username": "alice", "role": "operator", "token": "t0"}
    assert ApiToken.objects.get().last_used_at is not None


def test_token_is_limited_by_its_role_and_its_owner(people: Cast) -> None:
    low, high = make_token(people.ada, "viewer"), make_token(people.ada, "admin")
    assert me(low).json()["role"] == "viewer"
    people.ada.role = "operator"
    people.ada.save()
    assert me(high).json()["role"] == "operator"
    with pytest.raises(ValidationError, match="a token cannot exceed"):
        token_actions.create_token(people.charlie, "x", "operator")


@pytest.mark.parametrize("how", ["revoked", "expired", "owner gone", "invented"])
def test_invalid_token_is_rejected(people: Cast, how: str) -> None:
    clear = make_token(people.alice)
    token = ApiToken.objects.get()
    if how == "revoked":
        client_of(people.alice).post(f"/profile/tokens/{token.pk}/revoke/")
    elif how == "expired":
        ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif how == "owner gone":
        actions.set_active(people.ada, people.alice, False)
    else:
        clear = "emb_invented"
    answer = me(clear)
    assert answer.status_code == 401
    assert answer.json()["code"] == "authentication_failed"


def test_tokens_of_others_cannot_be_revoked(people: Cast) -> None:
    make_token(people.alice)
    token = ApiToken.objects.get()
    charlie = client_of(people.charlie)
    assert charlie.post(f"/profile/tokens/{token.pk}/revoke/").status_code == 404
    with pytest.raises(PermissionDenied):
        token_actions.revoke_token(people.charlie, token)
    assert ApiToken.objects.exists()


def test_first_admin_gets_a_random_password_printed_once(capsys: object) -> None:
    call_command("emberline_admin", create=True)
    first = capsys.readouterr().out
    (password,) = re.findall(r"^password: (\S+)$", first, re.M)
    admin = User.objects.get(username="admin")
    assert admin.check_password(password)
    assert admin.role == "admin"
    call_command("emberline_admin", create=True)
    assert "password:" not in capsys.readouterr().out
    call_command("emberline_admin", reset=True)
    (new,) = re.findall(r"^password: (\S+)$", capsys.readouterr().out, re.M)
    admin.refresh_from_db()
    assert new != password
    assert admin.check_password(new)


def test_password_reset_of_an_unknown_user_is_an_error(people: Cast) -> None:
    with pytest.raises(CommandError, match="Admin alice does not exist"):
        call_command("emberline_admin", reset=True, username="alice")
