"""API tokens as text: how one is made, and how its owner is found again.

Promises that only a SHA-256 is stored. A plain hash suffices: the text has 240 random bits, so
there is nothing to guess, and no per-request cost of a password hash.
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
# Last use is for people; to the minute is enough and spares a write with every request.
_USE_NOTED_EVERY = timedelta(minutes=1)


def make() -> tuple[str, str, str]:
    """(clear text, prefix to recognise it by, SHA-256); the first is shown once and forgotten."""
    clear = MARK + secrets.token_urlsafe(30)
    return clear, clear[:_SHOWN], digest(clear)


def digest(clear: str) -> str:
    return hashlib.sha256(clear.encode()).hexdigest()


def find(clear: str) -> ApiToken | None:
    """The live token with this text, its user loaded; notes that it was used."""
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
        except OperationalError as error:  # a full disk must not cost a call that only reads
            count("uses_unrecorded", of="token")
            log.warning("token use not recorded: %s", error)
    return token


NAME = "system"
PROOF_KEY = "emberline.local"
PROOF = object()
"""Beside a request of this very process. What comes over a network is text."""


def system() -> User:
    user = User(username=NAME, role=Role.ADMIN.value)
    user.team_roles = {}  # it is in no table, so nothing is to be read of it
    return user


def row(actor: Any) -> User | None:
    """What a foreign key to the actor holds; None for the console itself."""
    return actor if isinstance(actor, User) and actor.pk is not None else None
