"""The mark a browser gets when a person has logged in with it: it is counted apart from strangers.

Promises no rights by it: the mark only says that a password was right here once.
"""

from __future__ import annotations

import secrets

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponseBase

from console.signon.login_limits import folded

_SALT = "console.signon.device"
_AGE_S = 180 * 24 * 3600


def known(request: HttpRequest, name: str) -> str:
    """An id of this browser if the name has logged in with it before, else ""."""
    cookie = request.COOKIES.get(settings.DEVICE_COOKIE_NAME, "")
    try:
        whose, mark = signing.loads(cookie, salt=_SALT, max_age=_AGE_S)
    except (signing.BadSignature, ValueError, TypeError):  # none, or not ours
        return ""
    return str(mark) if whose == folded(name) else ""


def remember(request: HttpRequest, response: HttpResponseBase, name: str) -> None:
    mark = known(request, name) or secrets.token_hex(16)
    response.set_cookie(
        settings.DEVICE_COOKIE_NAME,
        signing.dumps([folded(name), mark], salt=_SALT),
        max_age=_AGE_S,
        httponly=True,
        secure=settings.SESSION_COOKIE_SECURE,
        samesite="Lax",
    )
