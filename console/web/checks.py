"""System checks (`manage.py check`) for contradictory settings, each with a fix."""

from __future__ import annotations

import stat
from difflib import get_close_matches
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as Caution

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@register()
def check_reach(**_: Any) -> list[CheckMessage]:
    """Check that a remotely reachable console has host names, TLS and no debug pages."""
    host = settings.EMBERLINE.host
    if host in LOOPBACK:
        return []
    messages: list[CheckMessage] = []
    if settings.DEBUG:
        messages.append(
            Error(
                f"EMBERLINE_DEBUG is on while the console listens on {host}.",
                hint="Unset EMBERLINE_DEBUG, or listen on 127.0.0.1: debug pages show settings.",
                id="emberline.E001",
            )
        )
    if host in ("0.0.0.0", "::") and set(settings.ALLOWED_HOSTS) <= {*LOOPBACK, "[::1]"}:
        messages.append(
            Error(
                f"The console listens on {host} but accepts local host names only.",
                hint="Set EMBERLINE_ALLOWED_HOSTS to the host names in use, separated by commas.",
                id="emberline.E002",
            )
        )
    if not settings.SESSION_COOKIE_SECURE:
        messages.append(
            Caution(
                f"Passwords travel in clear text to {host}.",
                hint="Put TLS in front of the console and set EMBERLINE_HTTPS=1.",
                id="emberline.W003",
            )
        )
    return messages


@register()
def misspelt_variables(**_: Any) -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    read = settings.VARIABLES.names
    for name in sorted(set(settings.VARIABLES) - read):
        meant = get_close_matches(name, read, n=1, cutoff=0.9)
        if name.startswith("EMBERLINE_") and meant:
            messages.append(
                Caution(
                    f"{name} has no effect: no setting reads it.",
                    hint=f"Unset it, or correct its name. Similar: {meant[0]}.",
                    id="emberline.W009",
                )
            )
    return messages


@register()
def workers(**_: Any) -> list[CheckMessage]:
    emberline = settings.EMBERLINE
    messages: list[CheckMessage] = []
    if (
        emberline.workers == "vllm"
        and emberline.provisioner == "local"
        and not emberline.vllm_python.exists()
    ):
        messages.append(
            Caution(
                f"No vLLM at {emberline.vllm_python}: workers of this console cannot start.",
                hint="Run `make up`, which installs it; or name another Python in "
                "EMBERLINE_VLLM_PYTHON; or set WORKERS=simulated.",
                id="emberline.W004",
            )
        )
    if emberline.workers == "vllm" and emberline.provisioner == "fake":
        messages.append(
            Caution(
                "WORKERS=vllm has no effect with EMBERLINE_PROVISIONER=fake, which starts nothing.",
                hint="Set WORKERS=simulated, or EMBERLINE_PROVISIONER=local.",
                id="emberline.W005",
            )
        )
    return messages


@register()
def private_files(**_: Any) -> list[CheckMessage]:
    folder = settings.EMBERLINE.secrets
    if not folder.exists():
        return []
    open_to_others = [
        path.name
        for path in (folder, *sorted(folder.rglob("*")))
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    if not open_to_others:
        return []
    return [
        Error(
            f"Other users of this host can read secrets: {', '.join(open_to_others)}.",
            hint=f"chmod -R go= {folder}",
            id="emberline.E006",
        )
    ]


@register()
def login_limits(**_: Any) -> list[CheckMessage]:
    ladder = (
        settings.LOGIN_FAILURES_PER_USER,
        settings.LOGIN_FAILURES_PER_ADDRESS,
        settings.LOGIN_BRAKE_PER_USER,
        settings.LOGIN_BRAKE,
    )
    if ladder[0] > 0 and list(ladder) == sorted(ladder):
        return []
    return [
        Error(
            "The login limit per address is lower than the one per user, or one of them is off.",
            hint="Keep 0 < LOGIN_FAILURES_PER_USER <= LOGIN_FAILURES_PER_ADDRESS"
            " <= LOGIN_BRAKE_PER_USER <= LOGIN_BRAKE.",
            id="emberline.E007",
        )
    ]
