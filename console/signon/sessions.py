"""Django's session store over our own rows (`SESSION_ENGINE`).

Promises that a reader of the database (a backup, a replica) can take over no session: the key is
stored as a digest only. A session ends at the policy's longest age however much it is used, and
when it was not used for the policy's idle time.
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
from django.db import OperationalError
from django.utils import timezone

from console.core.counters import count
from console.signon.models import Session

log = logging.getLogger(__name__)

FACTS = "signon"
# Somebody at the login page: an attempt at the provider, a second factor.
_NOBODYS_AGE = timedelta(hours=1)
# To the minute is enough for people, and spares a write with every request.
_SEEN_EVERY = timedelta(minutes=1)


def digest(key: str) -> str:
    """160 of 256 bits: the column's width; keys have 165 random bits."""
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
        facts = data.get(FACTS, {})
        user = data.get(SESSION_KEY)
        began = datetime.fromtimestamp(facts["at"], UTC) if facts else timezone.now()
        row = cast(Session, super().create_model_instance(data))
        row.session_key = digest(row.session_key)
        row.expire_date = began + (settings.SIGNON.longest if user else _NOBODYS_AGE)
        row.user_id = int(user) if user else None
        row.created_at = began
        row.address = facts.get("address", "")
        row.agent = facts.get("agent", "")
        row.method = facts.get("method", "")
        return row

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return self.create_model_instance(data)

    def touch(self) -> None:
        """A person did something: the idle time starts anew."""
        now = timezone.now()
        row = self.row
        if row is not None and row.last_seen_at < now - _SEEN_EVERY:
            try:
                Session.objects.filter(pk=row.pk).update(last_seen_at=now)
            except OperationalError as error:  # a full disk must not cost a page that only reads
                count("uses_unrecorded", of="session")
                log.warning("session use not recorded: %s", error)

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
