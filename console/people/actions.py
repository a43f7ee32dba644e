"""Everything that changes people and their roles: check, do, and leave a trail.

Promises that the last admin stays one, that a password in clear text is returned to the caller once
and kept nowhere, and that each function is one transaction.
"""

from __future__ import annotations

import secrets

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from console.accounts.models import Role, User
from console.accounts.permissions import RANK, require
from console.audit.record import record
from console.people.token_actions import EndedAccess, end_access, fit_tokens, revoke_tokens


def random_password() -> str:
    """About 119 bits; no character that looks like another."""
    alphabet = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
    groups = ("".join(secrets.choice(alphabet) for _ in range(5)) for _ in range(4))
    return "-".join(groups)


@transaction.atomic
def create_user(
    actor: User | None, username: str, role: str, password: str = ""
) -> tuple[User, str]:
    """The new user and the password to hand over; `actor` None is the machine's own command,
    which may bring a password that an installer chose."""
    _admin(actor)
    if User.objects.filter(username__iexact=username).exists():
        raise ValidationError({"username": f"“{username}” is taken. Choose another name."})
    user = User(username=username, role=_role(role))
    if password:
        validate_password(password, user)
    password = password or random_password()
    user.set_password(password)
    user.full_clean()
    user.save()
    record(actor, "user.create", f"user/{username}", {"role": [None, role]})
    return user, password


@transaction.atomic
def set_role(actor: User, user: User, role: str) -> None:
    _admin(actor)
    if user.role == _role(role):
        return
    _not_the_last_admin(user)
    before, user.role = user.role, role
    user.save(update_fields=["role"])
    record(actor, "user.role", f"user/{user.username}", {"role": [before, role]})
    fit_tokens(actor, user, "the role was lowered")


@transaction.atomic
def set_active(actor: User, user: User, active: bool) -> None:
    """Deactivation ends every session and revokes every token: activation brings none back."""
    _admin(actor)
    if user.is_active == active:
        return
    if not active:
        if actor.pk == user.pk:
            raise ValidationError("You cannot deactivate yourself. Ask another admin.")
        _not_the_last_admin(user)
    user.is_active = active
    user.save(update_fields=["is_active"])
    ended = None if active else end_access(actor, user, "the person was deactivated")
    verb = "user.activate" if active else "user.deactivate"
    record(actor, verb, f"user/{user.username}", {"active": [not active, active], **_ended(ended)})


@transaction.atomic
def reset_password(actor: User | None, user: User) -> tuple[str, EndedAccess]:
    """Return a new random password and what stopped working with the old one."""
    _admin(actor)
    password = random_password()
    user.set_password(password)
    user.save(update_fields=["password"])
    ended = end_access(actor, user, "the password was reset")
    record(actor, "user.password.reset", f"user/{user.username}", _ended(ended))
    return password, ended


@transaction.atomic
def password_changed(user: User, ended_sessions: int, *, with_tokens: bool) -> EndedAccess:
    """Record the person's own change. Tokens are for programs, which a routine change must not
    stop: they are revoked on request only."""
    revoked = revoke_tokens(user, user, "the password was changed") if with_tokens else 0
    ended = EndedAccess(ended_sessions, revoked)
    record(user, "user.password.change", f"user/{user.username}", _ended(ended))
    return ended


def _ended(ended: EndedAccess | None) -> dict[str, int]:
    if ended is None:
        return {}
    return {"sessions_ended": ended.sessions, "tokens_revoked": ended.tokens}


def _admin(actor: User | None) -> None:
    if actor is not None:
        require(actor, Role.ADMIN)


def _role(role: str) -> str:
    if role not in RANK:
        raise ValidationError({"role": f"“{role}” is not a role. Choose: {', '.join(RANK)}."})
    return role


def _not_the_last_admin(user: User) -> None:
    """Holds all admins' rows, so that two admins cannot remove each other at once."""
    admins = User.objects.select_for_update().filter(role=Role.ADMIN, is_active=True)
    if list(admins.order_by("pk").values_list("pk", flat=True)) == [user.pk]:
        raise ValidationError(
            f"{user.username} is the only admin. Give another person the admin role first."
        )
