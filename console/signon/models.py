"""Sessions, login attempts and provider identities.

A session is stored under a digest of its key, so that no row can be used to log in.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import OperationalError, models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from console.accounts.models import User
from console.core.counters import increment

# Order matters: each browser's header also names those below it.
_BROWSERS = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("FxiOS", "Firefox"),
    ("Chrome/", "Chrome"), ("CriOS", "Chrome"), ("Safari/", "Safari"), ("curl/", "curl"),
    ("python-", "a Python program"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"),
    ("CrOS", "ChromeOS"), ("Mac OS X", "macOS"), ("Linux", "Linux"),
)  # fmt: skip


def name_agent(agent: str) -> str:
    """Return a name such as "Firefox on Linux"."""
    browser = next((name for mark, name in _BROWSERS if mark in agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or "unknown browser"


class Session(AbstractBaseSession):
    """Session; `session_key` holds the digest. Without a user: login in progress."""

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
        return name_agent(self.agent)

    @classmethod
    def get_session_store_class(cls) -> Any:
        return SessionStore


class LoginAttempt(models.Model):
    """Failed or pending attempt, kept while it counts (login_limits.py)."""

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
    """User's account at a provider.

    Identified by the subject only: names and e-mail addresses can be reassigned.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities"
    )
    provider = models.CharField(max_length=40)
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    shown_as = models.CharField(max_length=200, blank=True)
    # Whether provider groups define the user's role. False for existing users who linked their
    # account: their role was set by an admin.
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


log = logging.getLogger(__name__)

FACTS = "signon"
# Lifetime of an anonymous session: a login in progress at the provider or second factor.
_ANONYMOUS_AGE = timedelta(hours=1)
# Minute resolution saves a write on every request.
_SEEN_RESOLUTION = timedelta(minutes=1)


def digest(key: str) -> str:
    """Return 160 of 256 bits, the column's width; keys have 165 random bits."""
    return hashlib.sha256(key.encode()).hexdigest()[:40]


class SessionStore(DatabaseStore):
    row: Session | None = None

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def exists(self, session_key: str) -> bool:
        return super().exists(digest(session_key))

    async def aexists(self, session_key: str) -> bool:
        return await super().aexists(digest(session_key))

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key is not None:
            Session.objects.filter(session_key=digest(key)).delete()

    async def adelete(self, session_key: str | None = None) -> None:
        await sync_to_async(self.delete)(session_key)

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        login_info = data.get(FACTS, {})
        user = data.get(SESSION_KEY)
        began = datetime.fromtimestamp(login_info["at"], UTC) if login_info else timezone.now()
        row = cast(Session, super().create_model_instance(data))
        row.session_key = digest(row.session_key)
        row.expire_date = began + (settings.SIGNON.longest if user else _ANONYMOUS_AGE)
        row.user_id = int(user) if user else None
        row.created_at = began
        row.address = login_info.get("address", "")
        row.agent = login_info.get("agent", "")
        row.method = login_info.get("method", "")
        return row

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return self.create_model_instance(data)

    def touch(self) -> None:
        """Restart the idle time after user activity."""
        now = timezone.now()
        row = self.row
        if row is not None and row.last_seen_at < now - _SEEN_RESOLUTION:
            try:
                Session.objects.filter(pk=row.pk).update(last_seen_at=now)
            except OperationalError as error:  # a full disk must not fail a read-only page
                increment("uses_unrecorded", of="session")
                log.warning("Could not record the use of a session: %s", error)

    def _get_session_from_db(self) -> Session | None:
        now = timezone.now()
        self.row = Session.objects.filter(
            session_key=digest(self.session_key or ""),
            expire_date__gt=now,
            last_seen_at__gt=now - settings.SIGNON.idle,
        ).first()
        if self.row is None:
            self._session_key = None
        return self.row

    async def _aget_session_from_db(self) -> Session | None:
        return await sync_to_async(self._get_session_from_db)()


def own_session(request: HttpRequest) -> str:
    """Return the primary key of the request's session."""
    return digest(request.session.session_key or "")


def live_sessions(user: User) -> QuerySet[Session]:
    now = timezone.now()
    return Session.objects.filter(
        user_id=user.pk, expire_date__gt=now, last_seen_at__gt=now - settings.SIGNON.idle
    )
