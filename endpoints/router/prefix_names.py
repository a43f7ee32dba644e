"""Routing actions: naming of prefixes. The strategy is part of the endpoint spec.

Permission, validation, then one transaction with its audit entry.
"""

from __future__ import annotations

import re
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.audit.record import record
from console.core.errors import Problem, Refused
from endpoints import selectors as endpoint_selectors
from endpoints import teams
from endpoints.router.models import PrefixName

MAX_NAMES = 500
MAX_NAME_LENGTH = PrefixName._meta.get_field("name").max_length or 80
_DIGEST = re.compile(r"[0-9a-f]{16}")


def name_prefix(actor: Any, endpoint_name: str, digest: str, name: Any) -> str:
    """Set the prefix's name and return it; "" removes it."""
    teams.require_change(actor, endpoint_name)
    endpoint = endpoint_selectors.get(endpoint_name)
    text = name.strip() if isinstance(name, str) else None
    if text is None or len(text) > MAX_NAME_LENGTH or not text.isprintable():
        remedy = f"Enter up to {MAX_NAME_LENGTH} printable characters."
        raise Refused(Problem("name", name, "Invalid name.", remedy, "invalid"))
    if not _DIGEST.fullmatch(digest):
        message, remedy = "Unknown prefix.", "Use a prefix ID from the list: 16 hexadecimal digits."
        raise Refused(Problem("prefix", digest, message, remedy, "invalid"))
    with transaction.atomic():
        prefix_name = PrefixName.objects.filter(endpoint=endpoint, digest=digest).first()
        before = prefix_name.name if prefix_name else ""
        if before == text:
            return text
        if (
            prefix_name is None
            and PrefixName.objects.filter(endpoint=endpoint).count() >= MAX_NAMES
        ):
            message = f"The limit of {MAX_NAMES} named prefixes is reached."
            raise Refused(Problem("name", text, message, "Remove a name first.", "too_many"))
        if text:
            named = {"name": text, "named_by": stored_actor(actor), "named_at": timezone.now()}
            PrefixName.objects.update_or_create(endpoint=endpoint, digest=digest, defaults=named)
        elif prefix_name:
            prefix_name.delete()
        changes = {f"prefixes.{digest}": [before or None, text or None]}
        record(stored_actor(actor), "prefix.name", f"endpoint/{endpoint_name}", changes)
    return text
