"""Reads of people and tokens, for pages and commands."""

from __future__ import annotations

from django.db.models import Count, QuerySet

from console.accounts.models import ApiToken, Role, User


def people() -> QuerySet[User]:
    return User.objects.annotate(token_count=Count("tokens")).order_by("-is_active", "username")


def admins() -> QuerySet[User]:
    return User.objects.filter(role=Role.ADMIN, is_active=True)


def tokens_of(user: User) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user=user).order_by("-created_at")
