"""Reads of people and tokens, for pages and commands."""

from __future__ import annotations

from django.db.models import Count, QuerySet

from console.accounts.models import ApiToken, Role, Team, User
from console.accounts.permissions import Somebody, teams_where


def people() -> QuerySet[User]:
    return User.objects.annotate(token_count=Count("tokens")).order_by("-is_active", "username")


def admins() -> QuerySet[User]:
    return User.objects.filter(role=Role.ADMIN, is_active=True)


def tokens_of(user: User) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user=user).order_by("-created_at")


def team(slug: str) -> Team | None:
    return Team.objects.filter(slug=slug).first()


def teams_with(viewer: Somebody, role: str = "viewer") -> QuerySet[Team]:
    """The teams for which the viewer has the role. None: all, the console asks for itself."""
    held = teams_where(viewer, role) if viewer is not None else None
    return Team.objects.all() if held is None else Team.objects.filter(pk__in=held)


def colleagues() -> bool:
    """More than one person can log in."""
    return User.objects.filter(is_active=True).count() > 1
