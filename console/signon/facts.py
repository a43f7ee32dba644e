"""What a session says about its login: when, from where, with which browser and how."""

from __future__ import annotations

import time
from typing import Any

from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest

from console.signon.sessions import FACTS
from console.web.server.client_address import client_address


@receiver(user_logged_in)
def note(request: HttpRequest, **_: Any) -> None:
    """Whoever logs somebody in, the session has an age; flow.py adds how it was done."""
    now = time.time()
    request.session[FACTS] = {
        "at": now,
        "confirmed": now,
        "address": client_address(request),
        "agent": request.headers.get("User-Agent", "")[:200],
    }


def add(request: HttpRequest, **more: Any) -> None:
    request.session[FACTS] = {**request.session.get(FACTS, {}), **more}


def of(request: HttpRequest) -> dict[str, Any]:
    return dict(request.session.get(FACTS, {}))
