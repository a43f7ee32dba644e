"""Generate API tokens and look up their owners.

Only a SHA-256 is stored. A plain hash suffices: a token has 240 random bits, so it cannot be
guessed, and requests avoid the cost of a password hash.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from datetime import timedelta
from typing import Any

from django.db import OperationalError
from django.db.models import Q
from django.utils import timezone

from console.accounts.models import ApiToken, Role, User
from console.core.counters import count

log = logging.getLogger(__name__)

MARK = "emb_"
_SHOWN = len(MARK) + 6
# Minute resolution saves a write on every request.
_USE_NOTED_EVERY = timedelta(minutes=1)


def make() -> tuple[str, str, str]:
    """Return (clear text, display prefix, SHA-256); the clear text is never stored."""
    clear = MARK + secrets.token_urlsafe(30)
    return clear, clear[:_SHOWN], digest(clear)


def digest(clear: str) -> str:
    return hashlib.sha256(clear.encode()).hexdigest()


def find(clear: str) -> ApiToken | None:
    """Return the valid token with its user, recording its use, or None."""
    if not clear.startswith(MARK):
        return None
    token = (
        ApiToken.objects.select_related("user")
        .filter(sha256=digest(clear), user__is_active=True)
        .first()
    )
    if token is None or token.expired:
        return None
    now = timezone.now()
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - _USE_NOTED_EVERY)
    if token.last_used_at is None or token.last_used_at < now - _USE_NOTED_EVERY:
        try:
            ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
        except OperationalError as error:  # a full disk must not fail a read-only request
            count("uses_unrecorded", of="token")
            log.warning("Could not record the use of an API token: %s", error)
    return token


NAME = "system"
PROOF_KEY = "emberline.local"
PROOF = object()
"""Marks in-process requests; values from the network are always text."""


def system() -> User:
    user = User(username=NAME, role=Role.ADMIN.value)
    user.team_roles = {}  # not stored in a table: there are no memberships to load
    return user


def row(actor: Any) -> User | None:
    """Return the actor as a foreign key value; None for the console itself."""
    return actor if isinstance(actor, User) and actor.pk is not None else None
