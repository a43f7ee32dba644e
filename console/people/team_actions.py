"""Actions on teams and memberships: validate, apply and write the audit log.

Console admins edit a team's name, namespaces and grants; its own admins may also edit the members.
Users cannot grant rights they lack. Memberships from SSO claims are read-only here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.text import slugify

from console.accounts.models import Membership, MembershipSource, Role, Team, TeamRole, User
from console.accounts.permissions import forget_memberships, require
from console.audit.record import diff, record
from console.core import uses
from console.core.errors import Problem, Refused
from console.core.grants import ALL_GRANTS, Grant
from console.people.token_actions import limit_tokens, revoke_team_tokens

MOST_NAMESPACES = 100
_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAMESPACE = re.compile(rf"({_NAME}/)?{_NAME}")
_SLUG = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
FIELDS = ("name", "slug", "description", "namespaces", "grants")


def create(actor: User, data: Mapping[str, Any]) -> Team:
    """Create a team; its immutable `slug` is derived from the name."""
    require(actor, Role.ADMIN)
    fields = {"description": "", "namespaces": [], "grants": [], **_check_fields(data)}
    fields.setdefault("slug", slugify(str(fields.get("name") or ""))[:40].strip("-"))
    values = _check_values(fields)
    if not _SLUG.fullmatch(str(values["slug"])):
        raise _refusal(
            "slug",
            values["slug"],
            "Invalid slug.",
            "Use up to 40 lower-case letters, digits and hyphens.",
            "invalid_slug",
        )
    with transaction.atomic():
        _check_unique(values)
        try:
            team = Team.objects.create(**values)
        except IntegrityError:  # created concurrently
            raise _taken_error("slug", values["slug"]) from None
        record(actor, "team.create", _target(team), diff({}, values), of=team)
    return team


def change(actor: User, slug: str, data: Mapping[str, Any]) -> Team:
    """Update the given fields. Endpoints outside the new namespaces stay where they are."""
    require(actor, Role.ADMIN)
    with transaction.atomic():
        team = _lock_team(slug)
        before = facts(team)
        values = _check_values({**before, **_check_fields(data)})
        if values["slug"] != slug:
            text, remedy = "The slug is part of URLs and cannot change.", "Omit it."
            raise _refusal("slug", values["slug"], text, remedy, "fixed")
        if values == before:
            return team
        _check_unique(values, team)
        for name, value in values.items():
            setattr(team, name, value)
        team.save(update_fields=list(values))
        record(actor, "team.update", _target(team), diff(before, values), of=team)
    return team


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
        record(actor, "team.delete", _target(team), diff(facts(team), {}))
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


def facts(team: Team) -> dict[str, Any]:
    return {name: getattr(team, name) for name in FIELDS}


def _check_fields(data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise _refusal("", data, "A team must be an object.", "Send a JSON object.", "type")
    for name, value in data.items():
        if name not in FIELDS:
            remedy = f"Known fields: {', '.join(FIELDS)}."
            raise _refusal(str(name), value, "Unknown field.", remedy, "unknown_field")
    return dict(data)


def _check_values(data: Mapping[str, Any]) -> dict[str, Any]:
    longest = {"name": 60, "slug": 40, "description": 200}
    for field, most in longest.items():
        value = data.get(field, "")
        good = isinstance(value, str) and len(value.strip()) <= most and value.isprintable()
        if not good or (field == "name" and not value.strip()):
            remedy = f"Enter up to {most} printable characters."
            raise _refusal(field, value, "Invalid value.", remedy, f"invalid_{field}")
    plain = {field: str(data.get(field, "")).strip() for field in longest}
    return {
        **plain,
        "namespaces": _check_namespaces(data.get("namespaces")),
        "grants": _check_grants(data.get("grants")),
    }


def _check_grants(value: Any) -> list[str]:
    """Return the grants validated, sorted and without duplicates."""
    remedy = f"Send a list. Known grants: {', '.join(Grant)}."
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _refusal("grants", value, "Not a list of grants.", remedy, "type")
    for grant in value:
        if not isinstance(grant, str) or grant not in ALL_GRANTS:
            raise _refusal("grants", grant, f"Unknown grant {grant!r}.", remedy, "unknown_grant")
    return sorted(set(value))


def _check_namespaces(value: Any) -> list[str]:
    """Return the namespaces validated, sorted and without duplicates."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > MOST_NAMESPACES:
        remedy = f"Send a list of at most {MOST_NAMESPACES} names; an empty list allows any."
        raise _refusal("namespaces", value, "Not a list of namespaces.", remedy, "type")
    for namespace in value:
        if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
            remedy = "Use NAMESPACE, or CLUSTER/NAMESPACE for a single cluster."
            raise _refusal(
                "namespaces", namespace, "Invalid namespace.", remedy, "invalid_namespace"
            )
    return sorted(set(value))


def _check_unique(wanted: Mapping[str, Any], mine: Team | None = None) -> None:
    others = Team.objects.exclude(pk=mine.pk) if mine else Team.objects.all()
    if others.filter(name__iexact=wanted["name"]).exists():
        raise _taken_error("name", wanted["name"])
    if others.filter(slug=wanted["slug"]).exists():
        raise _taken_error("slug", wanted["slug"])


def _check_manual(found: Membership) -> None:
    if found.source != MembershipSource.HAND:
        text = f"Single sign-on sets the role of {found.user} in {found.team}: {found.role}."
        remedy = "Change the groups at the identity provider; they apply from the next login."
        raise _refusal("username", found.user.username, text, remedy, "from_sign_on", 409)


def _lock_team(slug: str) -> Team:
    team = Team.objects.select_for_update().filter(slug=slug).first()
    if team is None:
        remedy = "Use an existing team."
        raise _refusal("team", slug, f"Team {slug} does not exist.", remedy, "not_found", 404)
    return team


def _target(team: Team, user: User | None = None) -> str:
    return f"team/{team.slug}/member/{user.username}"[:200] if user else f"team/{team.slug}"


def _taken_error(field: str, value: Any) -> Refused:
    text = f"The {field} “{value}” is used by another team."
    return _refusal(field, value, text, "Use another value.", f"{field}_taken", 409)


def _refusal(
    field: str, value: Any, text: str, remedy: str, code: str, status: int = 400
) -> Refused:
    return Refused(Problem(field, value, text, remedy, code), status_code=status)
