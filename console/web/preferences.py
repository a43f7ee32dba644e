"""Per-user page settings, such as the columns of a list.

One query per read or write; changes are not audited.
"""

from __future__ import annotations

from typing import Any

from console.accounts.models import User
from console.web.models import Preference


def get_preference(user: Any, key: str) -> Any:
    if not isinstance(user, User):
        return None
    return Preference.objects.filter(user=user, key=key).values_list("value", flat=True).first()


def set_preference(user: Any, key: str, value: Any) -> None:
    if not isinstance(user, User):
        return
    if value is None:
        Preference.objects.filter(user=user, key=key).delete()
    else:
        Preference.objects.update_or_create(user=user, key=key, defaults={"value": value})
