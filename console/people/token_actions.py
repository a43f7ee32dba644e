"""Create and revoke API tokens, and end a user's access.

A token cannot exceed the rights, owner and lifetime of its creator. Its clear text is returned once
and never stored. A right removed from a user is removed from their tokens permanently.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from console.accounts import credentials as tokens
from console.accounts.credentials import stored_actor
from console.accounts.models import ApiToken, Role, Team, TeamRole, User
from console.accounts.permissions import allows, allows_in_any_team, require, require_in_any_team
from console.audit.record import record

TOKEN_DAYS_MAX = 3650


@dataclass(frozen=True, slots=True)
class EndedAccess:
    sessions: int
    tokens: int

    def __str__(self) -> str:
        return f"Ended: {_number(self.sessions, 'session')}, {_number(self.tokens, 'API token')}."


@transaction.atomic
def create_token(
    actor: User,
    name: str,
    role: str,
    days: int | None = None,
    team: str = "",
    owner: User | None = None,
) -> tuple[ApiToken, str]:
    """Return the token row and its clear text.

    `days` None: no expiry. `team`: slug of the only allowed team, "" for all. `owner`: set by the
    console itself only; users create their own tokens.
    """
    if actor.pk is None and owner is not None:
        actor, by = owner, stored_actor(actor)
    else:
        by = actor
    require_in_any_team(actor, Role.VIEWER)
    limited = _team(actor, team)
    _role(actor, role, limited)
    if days is not None and not 0 < days <= TOKEN_DAYS_MAX:
        raise ValidationError({"days": f"Enter 1 to {TOKEN_DAYS_MAX} days."})
    expires = timezone.now() + timedelta(days=days) if days is not None else None
    if actor.expires_cap is not None and (expires is None or expires > actor.expires_cap):
        text = f"The token in use expires at {actor.expires_cap:%Y-%m-%d %H:%M} UTC."
        raise ValidationError({"days": f"{text} A new token cannot expire later."})
    if actor.tokens.filter(name=name).exists():
        raise ValidationError({"name": f"You already have a token “{name}”. Use another name."})
    clear, prefix, digest = tokens.make_token()
    token = ApiToken(
        user=actor,
        name=name,
        role=role,
        team=limited,
        prefix=prefix,
        sha256=digest,
        expires_at=expires,
    )
    token.full_clean()
    token.save()
    scope = {"role": [None, role], "team": [None, limited.slug if limited else None]}
    record(by, "token.create", _target(token), scope)
    return token, clear


@transaction.atomic
def revoke_token(actor: User, token: ApiToken) -> None:
    if token.user_id != actor.pk:
        require(actor, Role.ADMIN)
    record(actor, "token.revoke", _target(token), {"role": [token.role, None]})
    token.delete()


@transaction.atomic
def end_access(actor: User | None, user: User, reason: str) -> EndedAccess:
    sessions, _ = user.sessions.all().delete()
    return EndedAccess(sessions, revoke_tokens(actor, user, reason))


@transaction.atomic
def revoke_tokens(actor: User | None, user: User, reason: str) -> int:
    """Revoke all tokens of the user; return how many."""
    return _revoke(actor, user.tokens, reason)


@transaction.atomic
def revoke_team_tokens(actor: User | None, team: Team, reason: str) -> int:
    """Revoke all tokens limited to the team; return how many."""
    return _revoke(actor, ApiToken.objects.filter(team=team), reason)


@transaction.atomic
def limit_tokens(actor: User | None, user: User, reason: str) -> None:
    """Lower or revoke the user's tokens that exceed their current roles."""
    holder = User.objects.get(pk=user.pk)  # without the limits of the token in use
    for token in holder.tokens.select_related("user", "team"):
        held = next(
            (role for role in _roles_up_to(token.role) if _holds_role(holder, role, token.team)),
            None,
        )
        if held == token.role:
            continue
        verb = "token.lower" if held else "token.revoke"
        record(actor, verb, _target(token), {"role": [token.role, held]}, note=reason)
        if held is None:
            token.delete()
        else:
            token.role = held
            token.save(update_fields=["role"])


def _revoke(actor: User | None, tokens: Any, reason: str) -> int:
    revoked = list(tokens.select_related("user"))
    for token in revoked:
        record(actor, "token.revoke", _target(token), {"role": [token.role, None]}, note=reason)
        token.delete()
    return len(revoked)


def _roles_up_to(role: str) -> list[str]:
    """Return the role and all lower roles, highest first."""
    return TeamRole.values[TeamRole.values.index(role) :: -1]


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _team(actor: User, slug: str) -> Team | None:
    if not slug:
        if actor.team_cap is not None:
            text = "The token in use is limited to one team. Specify that team."
            raise ValidationError({"team": text})
        return None
    team = Team.objects.filter(slug=slug).first()
    if team is None or not allows(actor, Role.VIEWER, of=team):
        raise ValidationError(
            {"team": f"You are not a member of a team “{slug}”. Use one of your teams."}
        )
    return team


def _role(actor: User, role: str, team: Team | None) -> None:
    if role not in TeamRole.values:
        text = f"Unknown role “{role}”. Use one of: {', '.join(TeamRole.values)}."
        raise ValidationError({"role": text})
    if not _holds_role(actor, role, team):
        where = f"in {team.name}" if team else "in any team"
        text = f"You do not have the role {role} {where}; a token cannot exceed your role."
        raise ValidationError({"role": text})


def _holds_role(user: User, role: str, team: Team | None) -> bool:
    return allows(user, role, of=team) if team else allows_in_any_team(user, role)


def _target(token: ApiToken) -> str:
    return f"user/{token.user.username}/token/{token.name}"
