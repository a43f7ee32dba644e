"""Rows of the way in: sessions with whom and where from, and attempts that failed.

Promises that no row opens a session: a session is stored under a digest of its key.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils import timezone

from console.signon.core import user_agents


class Session(AbstractBaseSession):
    """`session_key` holds the digest (see sessions.py). Without a user: somebody at the login."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="sessions",
    )
    created_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now)
    address = models.CharField(max_length=45, blank=True)
    agent = models.CharField(max_length=200, blank=True)
    method = models.CharField(max_length=80, blank=True)

    class Meta:
        indexes = (models.Index(fields=("user", "-last_seen_at"), name="session_by_user"),)

    def __str__(self) -> str:
        return f"{self.user_id or 'nobody'} since {self.created_at:%Y-%m-%d %H:%M}"

    @property
    def browser(self) -> str:
        return user_agents.named(self.agent)

    @classmethod
    def get_session_store_class(cls) -> Any:
        from console.signon.sessions import SessionStore

        return SessionStore


class LoginAttempt(models.Model):
    """One attempt that was not right (or not yet), kept as long as it counts (throttle.py)."""

    name = models.CharField(max_length=150)
    network = models.CharField(max_length=50)
    device = models.CharField(max_length=64, blank=True)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = (
            models.Index(fields=("name", "at"), name="loginattempt_by_name"),
            models.Index(fields=("network", "at"), name="loginattempt_by_network"),
            models.Index(fields=("at",), name="loginattempt_by_time"),
        )

    def __str__(self) -> str:
        return f"{self.name} from {self.network}"


class Identity(models.Model):
    """A person's account at a provider. The subject alone says who it is: names and e-mail
    addresses there can be given to somebody else."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities"
    )
    provider = models.CharField(max_length=40)
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    shown_as = models.CharField(max_length=200, blank=True)
    # The provider's groups say which role the person has here. Not so for a person who was here
    # first and linked their account: their role is an admin's word.
    leads = models.BooleanField(default=False)
    groups = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    last_login_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("provider", "pk")
        constraints = (
            models.UniqueConstraint(
                fields=("provider", "issuer", "subject"), name="identity_is_one_persons"
            ),
        )

    def __str__(self) -> str:
        return f"{self.shown_as or self.subject} at {self.provider}"


class Factor(models.Model):
    """A person's second factor: codes by time, and recovery codes for a lost telephone."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="factor"
    )
    secret = models.TextField()  # sealed
    recovery = models.TextField()  # sealed; what is left of the codes
    recovery_left = models.PositiveSmallIntegerField(default=0)
    # The time step of the last code that was right: no code is right twice.
    last_step = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"second factor of {self.user_id}"
