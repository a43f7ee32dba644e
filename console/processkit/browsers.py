"""Which requests to an admin port come from a web page, and are refused.

An admin port has no pages and no login of its own where it listens on this machine only, so a page
open in a browser here could give orders to it: across origins (the browser adds Origin or
Sec-Fetch-Site, or sends a form), or by DNS rebinding (a name of the attacker's which resolves to
127.0.0.1 and stands in Host).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

# What a browser sends to another origin without asking there first.
_FORM_TYPES: Final = frozenset(
    {"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}
)
_HEALTH: Final = ("/healthz", "/readyz")  # checked under any name, and without a secret
Header = Callable[[str], str | None]  # a header's value by its name in lower case


def is_loopback(host: str) -> bool:
    """Whether an address to listen on, or a host name, is this machine for itself."""
    bare = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost" or bare.endswith(".localhost")


def refusal(path: str, header: Header, *, is_local: bool, is_order: bool) -> str:
    """Return why a request is refused, "" if it is not; a health check never is.

    `is_local`: the port listens on a loopback address. `is_order`: the request changes something.
    """
    if path in _HEALTH:
        return ""
    host = header("host") or ""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if is_local and name and not is_loopback(name):
        return (
            f"this port is for this machine only and is not called {name[:100]!r}: "
            "use 127.0.0.1 or localhost"
        )
    if header("origin") is not None or header("sec-fetch-site") not in (None, "none"):
        return "web pages may not use the admin port: call it from a program or with curl"
    kind = (header("content-type") or "").partition(";")[0].strip().lower()
    if is_order and kind in _FORM_TYPES:
        return f"content-type {kind} is refused, as a web page could send it: leave it out"
    return ""
