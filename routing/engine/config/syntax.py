"""Parse single values: addresses, worker URLs, strategies, session keys."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from routing.engine.config.fields import TOKEN, ConfigError
from routing.engine.config.schema import ISOLATIONS, STRATEGIES, Address, SessionKey


def parse_address(name: str, value: str) -> Address:
    """Parse `HOST:PORT` or `[IPv6]:PORT`; port 0 selects a free port."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})", value)
    if found is None or int(found[3]) > 65535:
        raise ConfigError(name, value, "must be HOST:PORT", "For example 127.0.0.1:9000.")
    return Address(found[1] or found[2], int(found[3]))


def parse_strategy(value: str) -> str:
    if value not in STRATEGIES:
        raise ConfigError(
            "strategy", value, "is not a strategy", f"Use one of: {', '.join(STRATEGIES)}."
        )
    return value


def parse_isolation(value: str) -> str:
    if value not in ISOLATIONS:
        raise ConfigError(
            "cache_isolation", value, "is not an isolation", f"Use one of: {', '.join(ISOLATIONS)}."
        )
    return value


def parse_session_key(value: str) -> SessionKey:
    source, _, name = value.partition(":")
    if source not in ("header", "cookie", "body") or not TOKEN.fullmatch(name):
        raise ConfigError(
            "session_key",
            value,
            "must say where the session's name is",
            "Use header:NAME, cookie:NAME, body:KEY or body:KEY.KEY (body:metadata.session_id).",
        )
    return SessionKey(source, name.lower() if source == "header" else name)


def parse_worker_url(name: str, url: str) -> tuple[Address, bool]:
    """Return the worker's address, and True if it uses TLS."""
    remedy = "For example http://127.0.0.1:8001 or https://[2001:db8::7]:8443."
    if "@" in url:  # credentials must not appear in error messages
        raise ConfigError(name, "(hidden)", "holds a user or password", "Leave them out.")
    try:
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
    except ValueError:
        raise ConfigError(name, url, "is not a URL", remedy) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(name, url, "must be http://HOST:PORT or https://HOST:PORT", remedy)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(name, url, "must end after the port", remedy)
    return Address(parts.hostname, port), tls
