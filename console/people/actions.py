"""Actions on users and roles: validate, apply and write the audit log.

The last admin cannot be removed. Clear-text passwords are returned once and never stored. Each
action is one transaction.
"""

from __future__ import annotations

import secrets

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from console.accounts.models import Role, User
from console.accounts.permissions import RANK, require
from console.audit.record import record
from console.people.token_actions import EndedAccess, end_access, limit_tokens, revoke_tokens


def make_password() -> str:
    """Return a password of about 119 bits without look-alike characters."""
    alphabet = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
    groups = ("".join(secrets.choice(alphabet) for _ in range(5)) for _ in range(4))
    return "-".join(groups)


@transaction.atomic
def create_user(
    actor: User | None, username: str, role: str, password: str = ""
) -> tuple[User, str]:
    """Return the new user and its password.

    `actor` None is a command on the server, which may pass a password chosen by the installer.
    """
    _require_admin(actor)
    if username in (".", ".."):  # no part of a URL
        raise ValidationError({"username": "Use letters or digits."})
    if User.objects.filter(username__iexact=username).exists():
        raise ValidationError(
            {"username": f"The user name “{username}” is already in use. Use another name."}
        )
    user = User(username=username, role=_check_role(role))
    if password:
        validate_password(password, user)
    password = password or make_password()
    user.set_password(password)
    user.full_clean()
    user.save()
    record(actor, "user.create", f"user/{username}", {"role": [None, role]})
    return user, password


@transaction.atomic
def set_role(actor: User, user: User, role: str) -> None:
    _require_admin(actor)
    if user.role == _check_role(role):
        return
    _require_other_admin(user)
    before, user.role = user.role, role
    user.save(update_fields=["role"])
    record(actor, "user.role", f"user/{user.username}", {"role": [before, role]})
    limit_tokens(actor, user, "the role was lowered")


@transaction.atomic
def set_active(actor: User, user: User, active: bool) -> None:
    """Activate or deactivate; deactivation ends sessions and revokes tokens permanently."""
    _require_admin(actor)
    if user.is_active == active:
        return
    if not active:
        if actor.pk == user.pk:
            raise ValidationError(
                "You cannot deactivate your own account. Ask another administrator."
            )
        _require_other_admin(user)
    user.is_active = active
    user.save(update_fields=["is_active"])
    ended = None if active else end_access(actor, user, "the user was deactivated")
    verb = "user.activate" if active else "user.deactivate"
    record(
        actor,
        verb,
        f"user/{user.username}",
        {"active": [not active, active], **_count_ended(ended)},
    )


@transaction.atomic
def reset_password(actor: User | None, user: User) -> tuple[str, EndedAccess]:
    """Return a new random password and the access ended with the old one."""
    _require_admin(actor)
    password = make_password()
    user.set_password(password)
    user.save(update_fields=["password"])
    ended = end_access(actor, user, "the password was reset")
    record(actor, "user.password.reset", f"user/{user.username}", _count_ended(ended))
    return password, ended


@transaction.atomic
def record_password_change(user: User, ended_sessions: int, *, with_tokens: bool) -> EndedAccess:
    """Record a password change by its owner.

    Tokens are revoked on request only: a routine change must not stop programs.
    """
    revoked = revoke_tokens(user, user, "the password was changed") if with_tokens else 0
    ended = EndedAccess(ended_sessions, revoked)
    record(user, "user.password.change", f"user/{user.username}", _count_ended(ended))
    return ended


def _count_ended(ended: EndedAccess | None) -> dict[str, int]:
    if ended is None:
        return {}
    return {"sessions_ended": ended.sessions, "tokens_revoked": ended.tokens}


def _require_admin(actor: User | None) -> None:
    if actor is not None:
        require(actor, Role.ADMIN)


def _check_role(role: str) -> str:
    if role not in RANK:
        raise ValidationError({"role": f"Unknown role “{role}”. Use one of: {', '.join(RANK)}."})
    return role


def _require_other_admin(user: User) -> None:
    """Raise if the user is the last admin; locks all admin rows against concurrent removal."""
    admins = User.objects.select_for_update(no_key=True).filter(role=Role.ADMIN, is_active=True)
    if list(admins.order_by("pk").values_list("pk", flat=True)) == [user.pk]:
        raise ValidationError(
            f"{user.username} is the only active admin. Assign the admin role to another user "
            "first."
        )
