"""People, their role, and the tokens their programs use.

Promises that no token is kept in clear text. What a role may do is said in permissions.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models
from django.utils import timezone


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


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
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)

    # A token may carry less than its user's role; set by the token's authentication, never saved.
    role_cap: str | None = None

    objects: ClassVar[People] = People()

    class Meta(AbstractUser.Meta):
        ordering = ("username",)

    def __str__(self) -> str:
        return self.username


class ApiToken(models.Model):
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=60)
    role = models.CharField(max_length=16, choices=Role.choices)
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


class LoginFailure(models.Model):
    """One refused attempt to log in, kept as long as it counts (see throttle.py)."""

    username = models.CharField(max_length=150)
    address = models.CharField(max_length=45)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = (
            models.Index(fields=("username", "at"), name="loginfailure_by_name"),
            models.Index(fields=("address", "at"), name="loginfailure_by_address"),
        )

    def __str__(self) -> str:
        return f"{self.username} from {self.address}"
