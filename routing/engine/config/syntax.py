"""Parse single values: addresses, URLs, discovery sources, session keys, open paths."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from routing.engine.config.schema import Address, DnsName, Service, SessionKey, Strategy
from routing.engine.config.validation import ConfigError, convert

_DNS = re.compile(r"(https://)?([A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?):(\d{1,5})")
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SERVICE = re.compile(rf"(https://)?({_DNS_LABEL})/({_DNS_LABEL})(?::({_DNS_LABEL}))?")
_PATH = re.compile(r"/[!-~]{0,255}|\*")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}")


def parse_address(name: str, value: str) -> Address:
    """Parse `HOST:PORT` or `[IPv6]:PORT`; port 0 selects a free port."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})", value)
    if match is None or int(match[3]) > 65535:
        raise ConfigError(name, value, "must be HOST:PORT", "For example 127.0.0.1:9000.")
    return Address(match[1] or match[2], int(match[3]))


def parse_strategy(value: str) -> str:
    strategy: str = convert(value, Strategy, "strategy")
    return strategy


def parse_session_key(value: str) -> SessionKey:
    source, _, name = value.partition(":")
    if source not in ("header", "cookie", "body") or not _TOKEN.fullmatch(name):
        raise ConfigError(
            "session_key",
            value,
            "must be a session key",
            "Use header:NAME, cookie:NAME, body:KEY or body:KEY.KEY (body:metadata.session_id).",
        )
    return SessionKey(source, name.lower() if source == "header" else name)


def parse_worker_url(name: str, url: str) -> tuple[Address, bool]:
    """Return the worker's address, and True if it uses TLS."""
    remedy = "For example http://127.0.0.1:8001 or https://[2001:db8::7]:8443."
    if "@" in url:  # credentials must not appear in error messages
        raise ConfigError(name, "(hidden)", "contains a user name or password", "Remove them.")
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


def parse_dns(name: str, value: str) -> DnsName:
    match = _DNS.fullmatch(value)
    if match is None or not 0 < int(match[4]) < 65536:
        raise ConfigError(
            name, value, "must be NAME:PORT", "For example workers.default.svc:8000, or https://..."
        )
    return DnsName(match[2], int(match[4]), tls=bool(match[1]))


def parse_service(name: str, value: str) -> Service:
    match = _SERVICE.fullmatch(value)
    if match is None:
        raise ConfigError(
            name,
            value,
            "must be NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT-NAME",
            "For example default/workers:http, or https://default/workers.",
        )
    return Service(match[2], match[3], match[4] or "", tls=bool(match[1]))


def parse_open_paths(items: Any) -> tuple[str, ...]:
    good = isinstance(items, list) and all(
        isinstance(item, str) and _PATH.fullmatch(item) and "*" not in item[:-1] for item in items
    )
    if not good:
        raise ConfigError(
            "open_paths",
            items,
            "must be a list of paths",
            'For example ["/metrics", "/plugin/*"]; a * is allowed at the end only.',
        )
    return tuple(items)
