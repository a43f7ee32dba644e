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
from console.core.counters import increment

log = logging.getLogger(__name__)

MARK = "emb_"
_PREFIX_LENGTH = len(MARK) + 6
# Minute resolution saves a write on every request.
_USE_RESOLUTION = timedelta(minutes=1)


def make_token() -> tuple[str, str, str]:
    """Return (clear text, display prefix, SHA-256); the clear text is never stored."""
    clear = MARK + secrets.token_urlsafe(30)
    return clear, clear[:_PREFIX_LENGTH], hash_token(clear)


def hash_token(clear: str) -> str:
    return hashlib.sha256(clear.encode()).hexdigest()


def find_token(clear: str) -> ApiToken | None:
    """Return the valid token with its user, recording its use, or None."""
    if not clear.startswith(MARK):
        return None
    token = (
        ApiToken.objects.select_related("user")
        .filter(sha256=hash_token(clear), user__is_active=True)
        .first()
    )
    if token is None or token.expired:
        return None
    now = timezone.now()
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - _USE_RESOLUTION)
    if token.last_used_at is None or token.last_used_at < now - _USE_RESOLUTION:
        try:
            ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
        except OperationalError as error:  # a full disk must not fail a read-only request
            increment("uses_unrecorded", of="token")
            log.warning("Could not record the use of an API token: %s", error)
    return token


SYSTEM_NAME = "system"
LOCAL_PROOF_KEY = "emberline.local"
LOCAL_PROOF = object()
"""Marks in-process requests; values from the network are always text."""


def make_system_user() -> User:
    user = User(username=SYSTEM_NAME, role=Role.ADMIN.value)
    user.team_roles = {}  # not stored in a table: there are no memberships to load
    return user


def stored_actor(actor: Any) -> User | None:
    """Return the actor as a foreign key value; None for the console itself."""
    return actor if isinstance(actor, User) and actor.pk is not None else None
