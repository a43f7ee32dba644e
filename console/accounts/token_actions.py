"""API tokens: made, and ended.

Promises that a token can do no more, for nobody else and no longer than whoever makes it; that its
clear text is returned once and kept nowhere.
"""

from __future__ import annotations

from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from console.accounts import tokens
from console.accounts.local import row
from console.accounts.models import ApiToken, Role, Team, TeamRole, User
from console.accounts.permissions import allows, allows_somewhere, require, require_somewhere
from console.audit.record import record

TOKEN_DAYS_MAX = 3650


@transaction.atomic
def create_token(
    actor: User,
    name: str,
    role: str,
    days: int | None = None,
    team: str = "",
    owner: User | None = None,
) -> tuple[ApiToken, str]:
    """The token's row and its clear text. `days` None: it does not expire. `team`: the slug of the
    one team it is to be for, "" for all that its user may. `owner`: whose it is, where the console
    itself makes it; a person makes their own only."""
    if actor.pk is None and owner is not None:
        actor, by = owner, row(actor)
    else:
        by = actor
    require_somewhere(actor, Role.VIEWER)
    limited = _team(actor, team)
    _role(actor, role, limited)
    if days is not None and not 0 < days <= TOKEN_DAYS_MAX:
        raise ValidationError({"days": f"Write 1 to {TOKEN_DAYS_MAX} days."})
    expires = timezone.now() + timedelta(days=days) if days is not None else None
    if actor.expires_cap is not None and (expires is None or expires > actor.expires_cap):
        text = f"The token that asks ends at {actor.expires_cap:%Y-%m-%d %H:%M} UTC."
        raise ValidationError({"days": f"{text} One made by it cannot live longer."})
    if actor.tokens.filter(name=name).exists():
        raise ValidationError({"name": f"You have a token called “{name}”. Choose another name."})
    clear, prefix, digest = tokens.make()
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
    """Its owner may, and an admin."""
    if token.user_id != actor.pk:
        require(actor, Role.ADMIN)
    record(actor, "token.revoke", _target(token), {"role": [token.role, None]})
    token.delete()


def _team(actor: User, slug: str) -> Team | None:
    if not slug:
        if actor.team_cap is not None:
            text = "The token that asks is for one team alone. Name that team."
            raise ValidationError({"team": text})
        return None
    team = Team.objects.filter(slug=slug).first()
    if team is None or not allows(actor, Role.VIEWER, of=team):
        raise ValidationError(
            {"team": f"You have no part in a team “{slug}”. Choose one of yours."}
        )
    return team


def _role(actor: User, role: str, team: Team | None) -> None:
    if role not in TeamRole.values:
        text = f"“{role}” is not a role. Choose: {', '.join(TeamRole.values)}."
        raise ValidationError({"role": text})
    held = allows(actor, role, of=team) if team else allows_somewhere(actor, role)
    if not held:
        where = f"in {team.name}" if team else "anywhere"
        text = f"You are not {role} {where}; a token cannot do more than you."
        raise ValidationError({"role": text})


def _target(token: ApiToken) -> str:
    return f"user/{token.user.username}/token/{token.name}"
