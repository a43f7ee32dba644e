"""Which sessions of a person are alive: what sessions.py would still let in."""

from __future__ import annotations

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.models import User
from console.signon.models import Session


def of(user: User) -> QuerySet[Session]:
    now = timezone.now()
    return Session.objects.filter(
        user_id=user.pk, expire_date__gt=now, last_seen_at__gt=now - settings.SIGNON.idle
    )
