"""Role checks: a viewer reads, an operator changes, an admin also manages access.

A role applies console-wide (the user's own; `member` has no rights) or to the objects of a team (a
membership). A token restricts both. Pages, REST and commands share these checks: code outside a
view calls `require`, every list goes through `visible`.

Clusters, cache tiers, instance types and settings belong to no team: check them without `of`. Any
role may view them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpResponseBase

from console.accounts.models import Membership, Role, User

RANK: dict[str, int] = {
    Role.MEMBER.value: 0,
    Role.VIEWER.value: 1,
    Role.OPERATOR.value: 2,
    Role.ADMIN.value: 3,
}
_NEEDED = {
    Role.MEMBER.value: "an account",
    Role.VIEWER.value: "the viewer role",
    Role.OPERATOR.value: "the operator role",
    Role.ADMIN.value: "the admin role",
}

View = Callable[..., HttpResponseBase]
Somebody = User | AnonymousUser | None
Row = TypeVar("Row", bound=Model)


@runtime_checkable
class Owned(Protocol):
    """Object owned by a team, or by none (None)."""

    @property
    def team_id(self) -> int | None: ...


def get_effective_role(user: User) -> str:
    """Return the console-wide role, limited by the token in use."""
    if user.team_cap is not None:
        return Role.MEMBER.value
    return _cap_role(user, user.role)


def get_role_on(user: User, thing: Owned) -> str:
    """Return the higher of the console-wide role and the role in the object's team."""
    team = thing.team_id
    if user.team_cap is not None and user.team_cap != team:
        return Role.MEMBER.value
    here = _memberships(user).get(team, Role.MEMBER.value) if team is not None else user.role
    return _cap_role(user, _higher_role(user.role, here))


def allows(user: Somebody, role: str, *, of: Owned | None = None) -> bool:
    """Return whether the user has the role console-wide, or for the object `of`."""
    rank = _rank(role)
    if not isinstance(user, User) or not user.is_active:
        return False
    if RANK[get_effective_role(user)] >= rank:
        return True
    return of is not None and RANK[get_role_on(user, of)] >= rank


def allows_in_any_team(user: Somebody, role: str) -> bool:
    teams = team_ids_with_role(user, role)
    return teams is None or bool(teams)


def require(user: Somebody, role: str, *, of: Owned | None = None) -> None:
    """Raise PermissionDenied unless the user has the role; None is anonymous, not the system."""
    if not allows(user, role, of=of):
        raise _denial(role, " for this team" if of is not None and of.team_id is not None else "")


def require_in_any_team(user: Somebody, role: str) -> None:
    if not allows_in_any_team(user, role):
        raise _denial(role, "")


def team_ids_with_role(user: Somebody, role: str) -> frozenset[int] | None:
    """Return the ids of teams in which the user has the role; None if it applies console-wide."""
    if allows(user, role):
        return None
    if not isinstance(user, User) or not user.is_active:
        return frozenset()
    held = {**_memberships(user)}
    if user.team_cap is not None:
        held = {user.team_cap: _higher_role(user.role, held.get(user.team_cap, Role.MEMBER.value))}
    return frozenset(
        team for team, here in held.items() if RANK[_cap_role(user, here)] >= _rank(role)
    )


def filter_visible(queryset: QuerySet[Row], user: Somebody, path: str = "team") -> QuerySet[Row]:
    """Filter to rows the user may view; `path` is the lookup from a row to its team."""
    teams = team_ids_with_role(user, Role.VIEWER)
    return queryset if teams is None else queryset.filter(**{f"{path}__in": teams})


def actor_of(request: Any) -> Any:
    """Return the user of a Django or REST request behind a login, typed for actions."""
    return request.user


def forget_memberships(user: User) -> None:
    """Drop the cached memberships after a change."""
    user.team_roles = None


def _memberships(user: User) -> Mapping[int, str]:
    if user.team_roles is None:
        user.team_roles = dict(
            Membership.objects.filter(user=user).values_list("team_id", "role").order_by()
        )
    return user.team_roles


def _cap_role(user: User, role: str) -> str:
    if user.role_cap is None:
        return role
    return min(role, user.role_cap, key=lambda one: RANK[one])


def _higher_role(one: str, other: str) -> str:
    return max(one, other, key=lambda role: RANK[role])


def _rank(role: str) -> int:
    if role not in RANK:
        raise ImproperlyConfigured(f"unknown role {role!r}; one of {', '.join(RANK)}")
    return RANK[role]


def _denial(role: str, where: str) -> PermissionDenied:
    return PermissionDenied(
        f"This action requires {_NEEDED[role]}{where}. Ask an administrator for access."
    )
