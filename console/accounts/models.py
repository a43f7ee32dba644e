"""Users, teams, roles and API tokens.

Tokens are stored as hashes only. permissions.py defines the rights of each role.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, UserManager
from django.core.validators import RegexValidator
from django.db import models
from django.urls import reverse
from django.utils import timezone

from console.core.grants import ALL_GRANTS, Grant
from console.validators import check_texts, plain_text

_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


class Role(models.TextChoices):
    """Console-wide role. A member has only the rights of its team roles."""

    MEMBER = "member", "Member"
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


class TeamRole(models.TextChoices):
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


class MembershipSource(models.TextChoices):
    """Origin of a membership: set manually, or derived from SSO claims at each login."""

    HAND = "hand", "By hand"
    OIDC = "oidc", "Single sign-on"


class People(UserManager["User"]):
    """User manager whose `createsuperuser` assigns the admin role, the only source of rights."""

    def create_superuser(
        self, username: str, email: str | None = None, password: str | None = None, **extra: Any
    ) -> User:
        return super().create_superuser(username, email, password, **{"role": Role.ADMIN, **extra})


class User(AbstractUser):
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.MEMBER)

    # Limits of the token in use, set by its authentication and never saved.
    role_cap: str | None = None
    team_cap: int | None = None
    expires_cap: datetime | None = None
    # Roles by team, loaded once per request; see permissions.py.
    team_roles: dict[int, str] | None = None

    objects: ClassVar[People] = People()

    class Meta(AbstractUser.Meta):
        ordering = ("username",)

    def __str__(self) -> str:
        return self.username

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        super().refresh_from_db(*args, **kwargs)
        self.team_roles = None


def check_namespaces(value: Any) -> None:
    check_texts(value, 100, re.compile(rf"({_LABEL}/)?{_LABEL}").fullmatch, "Invalid namespace")


def check_grants(value: Any) -> None:
    text = f"Not one of {', '.join(Grant)}"
    check_texts(value, len(Grant), ALL_GRANTS.__contains__, text)


class Team(models.Model):
    """Users who share endpoints.

    `namespaces` lists the allowed namespaces as "namespace" or "cluster/namespace"; empty allows
    all. `grants` lists the `grants.Grant` values that an admin allows beyond plain pods.
    """

    name = models.CharField(
        "Name",
        max_length=60,
        unique=True,
        error_messages={"unique": "Another team has this name."},
        validators=[plain_text],
    )
    slug = models.SlugField(
        "Slug",
        max_length=40,
        unique=True,
        error_messages={"unique": "Another team has this slug."},
        validators=[RegexValidator(rf"\A{_LABEL}\Z", "Invalid slug.", "invalid")],
        help_text="Part of URLs, immutable: lower-case letters, digits and hyphens. Derived from "
        "the name by default.",
    )
    description = models.CharField(
        "Description", max_length=200, blank=True, default="", validators=[plain_text]
    )
    namespaces: models.JSONField[Any, Any] = models.JSONField(
        "Namespaces",
        default=list,
        blank=True,
        validators=[check_namespaces],
        help_text="Allowed namespaces of its endpoints: NAMESPACE or CLUSTER/NAMESPACE. Empty: "
        "anywhere.",
    )
    grants: models.JSONField[Any, Any] = models.JSONField(
        "Grants",
        default=list,
        blank=True,
        validators=[check_grants],
        help_text="Permissions of its endpoints beyond restricted pods.",
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("accounts:team", args=[self.slug])

    @property
    def team_id(self) -> int:
        """Return its own id: a team satisfies `Owned`, so roles can be checked `of` it."""
        return int(self.pk)


class Membership(models.Model):
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=TeamRole.choices)
    source = models.CharField(
        max_length=8, choices=MembershipSource.choices, default=MembershipSource.HAND
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("user__username",)
        constraints = (
            models.UniqueConstraint(fields=("team", "user"), name="one_membership_a_team"),
        )

    def __str__(self) -> str:
        return f"{self.user} {self.role} of {self.team}"


class ApiToken(models.Model):
    """API token; `role` and `team` restrict the rights of its user."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=60)
    role = models.CharField(max_length=16, choices=TeamRole.choices)
    # Deleted with its team: a token without a team would have more rights.
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE)
    prefix = models.CharField(max_length=16)
    sha256 = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(fields=("user", "name"), name="apitoken_name_per_user"),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()
