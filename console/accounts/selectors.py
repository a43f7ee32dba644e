"""Queries on users, teams and tokens."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from allauth.mfa.models import Authenticator
from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet
from django.utils import timezone

from console.accounts.models import ApiToken, Membership, Role, Team, User
from console.accounts.permissions import Somebody, team_ids_with_role

TOKEN_STATES = ("active", "expired", "no expiry", "unused")
UNUSED = timedelta(days=90)


def list_users(search: str = "", role: str = "", team: str = "", state: str = "") -> QuerySet[User]:
    """Return users with teams and login methods in three queries, active users first.

    `state` is "active", "deactivated" or "nothing" (users without any role).
    """
    mine = Membership.objects.select_related("team").order_by("team__name")
    users = User.objects.annotate(token_count=Count("tokens", distinct=True))
    if search:
        words = Q(username__icontains=search) | Q(email__icontains=search)
        users = users.filter(words)
    if role:
        users = users.filter(role=role)
    if team:
        users = users.filter(memberships__team__slug=team)
    if state in ("active", "deactivated"):
        users = users.filter(is_active=state == "active")
    if state == "nothing":
        users = users.filter(role=Role.MEMBER, memberships=None)
    # Login methods belong to signon; loaded here for the badges of the list.
    factors = Authenticator.objects.filter(user=OuterRef("pk"), type__in=("totp", "webauthn"))
    rows = users.annotate(has_factor=Exists(factors)).prefetch_related(
        Prefetch("memberships", mine), "identities"
    )
    return rows.order_by("-is_active", "username")


def list_admins() -> QuerySet[User]:
    return User.objects.filter(role=Role.ADMIN, is_active=True)


def list_tokens_of(user: User) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user=user).select_related("team").order_by("-created_at")


def team(slug: str) -> Team | None:
    return Team.objects.filter(slug=slug).first()


def list_teams_with_role(viewer: Somebody, role: str = "viewer") -> QuerySet[Team]:
    """Return the teams in which the viewer has the role; all teams for viewer None."""
    held = team_ids_with_role(viewer, role) if viewer is not None else None
    return Team.objects.all() if held is None else Team.objects.filter(pk__in=held)


def existing_teams(slugs: Collection[str], viewer: Somebody) -> Collection[str]:
    rows = list_teams_with_role(viewer).filter(slug__in=slugs)
    return set(rows.values_list("slug", flat=True))


def has_several_users() -> bool:
    return User.objects.filter(is_active=True).count() > 1


def list_visible_teams(viewer: Somebody) -> QuerySet[Team]:
    """Return the viewer's teams annotated with their member counts."""
    return list_teams_with_role(viewer).annotate(people=Count("memberships")).order_by("name")


def list_members(team: Team) -> QuerySet[Membership]:
    return team.memberships.select_related("user").order_by("user__username")


def list_console_wide_users() -> list[User]:
    """Return users whose console-wide role lets them view every team's endpoints."""
    return list(User.objects.filter(is_active=True).exclude(role=Role.MEMBER).order_by("username"))


def list_all_tokens(search: str = "", state: str = "") -> QuerySet[ApiToken]:
    """Return the tokens of all users, most recently used first."""
    tokens = ApiToken.objects.select_related("user", "team")
    if search:
        tokens = tokens.filter(Q(name__icontains=search) | Q(user__username__icontains=search))
    now = timezone.now()
    narrowed = {
        "active": Q(expires_at=None) | Q(expires_at__gt=now),
        "expired": Q(expires_at__lte=now),
        "no expiry": Q(expires_at=None),
        "unused": Q(last_used_at=None, created_at__lt=now - UNUSED)
        | Q(last_used_at__lt=now - UNUSED),
    }
    return tokens.filter(narrowed.get(state, Q())).order_by("-last_used_at", "-created_at")
