"""What a person chose to see, kept from one visit to the next, such as a list's columns.

Promises one query a look. How a page looks is nobody else's matter: it is not in the trail.
"""

from __future__ import annotations

from typing import Any

from console.accounts.models import User
from console.web.models import Preference


def get(user: Any, key: str) -> Any:
    """None where nothing was chosen."""
    if not isinstance(user, User):
        return None
    return Preference.objects.filter(user=user, key=key).values_list("value", flat=True).first()


def put(user: Any, key: str, value: Any) -> None:
    """None forgets."""
    if not isinstance(user, User):
        return
    if value is None:
        Preference.objects.filter(user=user, key=key).delete()
    else:
        Preference.objects.update_or_create(user=user, key=key, defaults={"value": value})
