"""Actions on teams and memberships: validate, apply and write the audit log.

Console admins edit a team's name, namespaces and grants; its own admins may also edit the members.
Users cannot grant rights they lack. Memberships from SSO claims are read-only here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.text import slugify

from console.accounts.models import Membership, MembershipSource, Role, Team, TeamRole, User
from console.accounts.permissions import forget_memberships, require
from console.audit.record import diff, record
from console.core import uses
from console.core.errors import Problem, Refused, expect_object
from console.people.token_actions import limit_tokens, revoke_team_tokens
from console.resources.fields import ModelFields

FIELDS = ModelFields(Team, ("name", "slug", "description", "namespaces", "grants"))


def create(actor: User, data: Any) -> Team:
    """Create a team; its immutable `slug` is derived from the name by default."""
    require(actor, Role.ADMIN)
    values = dict(expect_object(data))
    values.setdefault("slug", slugify(str(values.get("name") or ""))[:40].strip("-"))
    team = Team()
    with transaction.atomic():
        _fill(team, values)
        try:
            team.save(force_insert=True)
        except IntegrityError:  # created concurrently
            raise _taken_error("slug", team.slug) from None
        record(actor, "team.create", _target(team), diff({}, FIELDS.values(team)), of=team)
    return team


def change(actor: User, slug: str, data: Any) -> Team:
    """Update the given fields. Endpoints outside the new namespaces stay where they are."""
    require(actor, Role.ADMIN)
    values = expect_object(data)
    if values.get("slug", slug) != slug:
        text, remedy = "The slug is part of URLs and cannot change.", "Omit it."
        raise _refusal("slug", values["slug"], text, remedy, "fixed")
    with transaction.atomic():
        team = _lock_team(slug)
        before = FIELDS.values(team)
        _fill(team, values)
        changes = diff(before, FIELDS.values(team))
        if changes:
            team.save(update_fields=FIELDS.names)
            record(actor, "team.update", _target(team), changes, of=team)
    return team


def _fill(team: Team, values: Mapping[str, Any]) -> None:
    FIELDS.fill(team, values)
    team.namespaces, team.grants = sorted(set(team.namespaces)), sorted(set(team.grants))
    if Team.objects.exclude(pk=team.pk).filter(name__iexact=team.name).exists():
        raise _taken_error("name", team.name)


def delete(actor: User, slug: str) -> None:
    """Delete with memberships and tokens; raise while the team owns an object."""
    require(actor, Role.ADMIN)
    with transaction.atomic():
        team = _lock_team(slug)
        owned = uses.of("team", slug)
        if owned:
            text = f"Team {team.name} owns {', '.join(owned[:5])}"
            more = f" and {len(owned) - 5} more" if len(owned) > 5 else ""
            remedy = "Move them to another team, or delete them."
            raise _refusal("slug", slug, f"{text}{more}.", remedy, "in_use", 409)
        record(actor, "team.delete", _target(team), diff(FIELDS.values(team), {}))
        why = f"team {team.name} was deleted"
        revoke_team_tokens(actor, team, why)
        members = list(User.objects.filter(memberships__team=team))
        team.memberships.all().delete()
        for member in members:
            limit_tokens(actor, member, why)
        team.delete()


@transaction.atomic
def set_member(actor: User, slug: str, username: str, role: Any) -> Membership:
    team = _lock_team(slug)
    require(actor, Role.ADMIN, of=team)
    if role not in TeamRole.values:
        remedy = f"Choose one of: {', '.join(TeamRole.values)}."
        raise _refusal("role", role, "Unknown team role.", remedy, "unknown_role")
    user = User.objects.filter(username=username).first()
    if user is None:
        text = f"User {username} does not exist."
        remedy = "Ask an administrator to add the user, or ask the user to log in once."
        raise _refusal("username", username, text, remedy, "unknown_user", 404)
    membership = Membership.objects.filter(team=team, user=user).first()
    if membership is not None and membership.role == role:
        return membership
    before = membership.role if membership else None
    if membership is None:
        membership = Membership.objects.create(team=team, user=user, role=role)
    else:
        _check_manual(membership)
        membership.role = role
        membership.save(update_fields=["role"])
    forget_memberships(user)
    record(actor, "team.member", _target(team, user), {"role": [before, role]}, of=team)
    limit_tokens(actor, user, f"the role in {team.name} was lowered")
    return membership


@transaction.atomic
def remove_member(actor: User, slug: str, username: str) -> None:
    """Remove a member; members may remove themselves, team admins anyone."""
    team = _lock_team(slug)
    leaving = isinstance(actor, User) and actor.username == username and actor.role_cap is None
    if not leaving:
        require(actor, Role.ADMIN, of=team)
    membership = Membership.objects.filter(team=team, user__username=username).first()
    if membership is None:
        text = f"{username} is not a member of {team.name}."
        raise _refusal("username", username, text, "No change is needed.", "not_found", 404)
    _check_manual(membership)
    membership.delete()
    forget_memberships(membership.user)
    record(
        actor,
        "team.leave",
        _target(team, membership.user),
        {"role": [membership.role, None]},
        of=team,
    )
    limit_tokens(actor, membership.user, f"the person left {team.name}")


def _check_manual(found: Membership) -> None:
    if found.source != MembershipSource.HAND:
        text = f"Single sign-on sets the role of {found.user} in {found.team}: {found.role}."
        remedy = "Change the groups at the identity provider; they apply from the next login."
        raise _refusal("username", found.user.username, text, remedy, "from_sign_on", 409)


def _lock_team(slug: str) -> Team:
    team = Team.objects.select_for_update(no_key=True).filter(slug=slug).first()
    if team is None:
        remedy = "Use an existing team."
        raise _refusal("team", slug, f"Team {slug} does not exist.", remedy, "not_found", 404)
    return team


def _target(team: Team, user: User | None = None) -> str:
    return f"team/{team.slug}/member/{user.username}"[:200] if user else f"team/{team.slug}"


def _taken_error(field: str, value: Any) -> Refused:
    text = f"Another team has this {field}."
    return _refusal(field, value, text, "Use another value.", "taken", 409)


def _refusal(
    field: str, value: Any, text: str, remedy: str, code: str, status: int = 400
) -> Refused:
    return Refused(Problem(field, value, text, remedy, code), status_code=status)
