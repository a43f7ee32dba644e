"""People, the teams they belong to, their roles, and the tokens their programs use.

Promises that no token is kept in clear text. What a role may do is said in permissions.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models
from django.urls import reverse
from django.utils import timezone


class Role(models.TextChoices):
    """Held everywhere. A member may do nothing but what a team's role lets them."""

    MEMBER = "member", "Member"
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


class TeamRole(models.TextChoices):
    """Held for what belongs to one team."""

    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


class MembershipSource(models.TextChoices):
    """Who says so: a person, or the sign-on's claims, which say it anew at each login."""

    HAND = "hand", "By hand"
    OIDC = "oidc", "Single sign-on"


class People(UserManager["User"]):
    """`createsuperuser` makes an admin: the role is the only thing that gives rights here."""

    def create_superuser(
        self,
        username: str,
        email: str | None = None,
        password: str | None = None,
        **extra: Any,
    ) -> User:
        return super().create_superuser(username, email, password, **{"role": Role.ADMIN, **extra})


class User(AbstractUser):
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.MEMBER)

    # A token may carry less than its user may do: a lower role, one team alone. Set by the token's
    # authentication, never saved.
    role_cap: str | None = None
    team_cap: int | None = None
    expires_cap: datetime | None = None
    # Roles by team, read once a request; see permissions.py.
    team_roles: dict[int, str] | None = None

    objects: ClassVar[People] = People()

    class Meta(AbstractUser.Meta):
        ordering = ("username",)

    def __str__(self) -> str:
        return self.username

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        super().refresh_from_db(*args, **kwargs)
        self.team_roles = None


class Team(models.Model):
    """People who run some endpoints together. `namespaces`: where on clusters these may be, each
    "namespace" or "cluster/namespace"; none means anywhere. `grants`: what of `grants.Grant` an
    admin allows them beyond plain pods."""

    name = models.CharField(max_length=60, unique=True)
    slug = models.SlugField(max_length=40, unique=True)
    description = models.CharField(max_length=200, blank=True, default="")
    namespaces = models.JSONField(default=list, blank=True)
    grants = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("accounts:team", args=[self.slug])

    @property
    def team_id(self) -> int:
        """A team belongs to itself, so that one may ask for a role `of` it."""
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
    """`role` and `team` only take away: the token can do what its user can, within both."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=60)
    role = models.CharField(max_length=16, choices=TeamRole.choices)
    # Gone with its team: a token without one could do more.
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
