"""Write and diff audit events; actions call `record` inside their transaction, signals never do.

Values with secret-like names and passwords inside URLs are not stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from console.accounts import gate
from console.accounts.credentials import stored_actor
from console.accounts.models import User
from console.accounts.permissions import Owned
from console.audit import chain
from console.audit.models import AuditEvent
from console.core.request_log import current_id

SYSTEM_ACTOR = "system"
HIDDEN = "(hidden)"
_SECRET = re.compile(r"(^|[._-])(password|secret|token|api_?key|authorization)$", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(\w+://)[^/@\s]*@")


def record(
    actor: User | None,
    verb: str,
    target: str,
    changes: Mapping[str, Any] | None = None,
    note: str = "",
    of: Owned | None = None,
) -> AuditEvent:
    """Write one audit event.

    `target` is like "endpoint/demo". The action is stored as "endpoint.update": a `verb` without an
    object belongs to the target. `changes` is the result of `diff`; `note` is the actor's
    comment. `actor` None is the console itself.
    `of` is the owned object, where `target` does not identify it.
    """
    kind, _, name = target.partition("/")
    owner = of or gate.find(kind, name)
    event = AuditEvent(
        actor=stored_actor(actor),
        actor_name=actor.get_username() if actor is not None else SYSTEM_ACTOR,
        team_id=owner.team_id if owner else None,
        verb=verb if "." in verb else f"{kind}.{verb}",
        target=target,
        changes=_clean(changes or {}),
        request_id=current_id(),
        note=_clean(note),
    )
    event.seal = chain.seal_new(event)
    event.save(force_insert=True)
    return event


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the differences as {"dotted.field": [before, after]}; None means absent."""
    old, new = _flat(before), _flat(after)
    return {
        name: [old.get(name), new.get(name)]
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    }


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and item:
            flat |= _flat(item, f"{name}.")
        else:
            flat[name] = item
    return flat


def _clean(value: Any, name: str = "") -> Any:
    """Return the value as JSON, with secrets removed."""
    if isinstance(value, Mapping):
        return {str(key): _clean(item, str(key)) for key, item in value.items()}
    if _SECRET.search(name):
        return HIDDEN if value not in (None, "", [None, None]) else value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item) for item in value]
    if isinstance(value, str):
        return _URL_PASSWORD.sub(rf"\1{HIDDEN}@", value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    try:
        return DjangoJSONEncoder().default(value)
    except TypeError:
        return str(value)
