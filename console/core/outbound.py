"""Guard for connections to user-supplied URLs: webhooks, metrics sources, Alertmanagers,
kubeconfigs.

The address actually connected to is checked, whatever the name resolved to before and however it
was written. Metadata services, link-local and unroutable addresses are always forbidden; this
machine and the admin ports of our routers and cache nodes are forbidden unless allowed by
EMBERLINE_OUTBOUND_ALLOW. Private networks are allowed: a Prometheus is usually there. URLs from
the console's own settings are `own` and may refer to this machine.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from console.core.addresses import Address, inner_address, no_server, numeric_address
from console.core.counters import increment

SCHEMES = ("http", "https")
SETTING = "EMBERLINE_OUTBOUND_ALLOW"
_ADMINS_S = 10.0


class ForbiddenAddressError(Exception):
    """Nothing was sent. Not an OSError, so that it is not handled as a network failure."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """An entry of EMBERLINE_OUTBOUND_ALLOW; `port` None allows every port."""

    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    port: int | None = None


def parse_allowed(text: str) -> Allowed:
    """Parse ADDRESS or NETWORK with an optional :PORT (IPv6 then in brackets); raise ValueError."""
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    number = int(port) if port else None
    if number is not None and not 0 < number < 65536:
        raise ValueError(port)
    return Allowed(ipaddress.ip_network(host), number)


_allowed: tuple[Allowed, ...] = ()
_admin_addresses: list[Callable[[], Collection[str]]] = []


def set_allowed(allowed: tuple[Allowed, ...]) -> None:
    """Set the addresses allowed by the operator, read once from the environment."""
    global _allowed
    _allowed = allowed


def register_admin_addresses(find: Callable[[], Collection[str]]) -> None:
    """Register `find`, which returns HOST:PORT of our admin ports. Called from AppConfig.ready;
    `find` runs in the connecting thread.
    """
    _admin_addresses.append(find)


def url_problem(url: str, *, query: bool = False) -> str:
    """Return what is wrong with a URL, "" if valid; resolves no name. `query`: allow a query,
    because nothing is appended.
    """
    if problem := syntax_problem(url, query=query):
        return problem
    parts = urlsplit(url)
    default = 443 if parts.scheme == "https" else 80
    return address_problem(parts.hostname or "", parts.port or default)


def syntax_problem(url: str, *, query: bool = False) -> str:
    """Return what is wrong with the form of a URL, whatever host it names."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "Not a valid address."
    if parts.scheme not in SCHEMES:
        return "It must begin with http:// or https://."
    if not parts.hostname or port == 0:
        return "It has no host."
    if "@" in parts.netloc:
        return "It contains credentials, which would be visible wherever the address is shown."
    if not query and (parts.query or parts.fragment):
        return 'It contains "?" or "#"; write only the part before.'
    if not url.isascii() or any(mark.isspace() or not mark.isprintable() for mark in url):
        return "It contains a space or another invalid character."
    return ""


def address_problem(host: str, port: int | None = None, *, own: bool = False) -> str:
    """Return why the address is forbidden, "" if not. A name returns "" and is checked on connect.
    `own`: the URL is from the console's settings.
    """
    address = numeric_address(host)
    if address is None:
        return ""
    address = inner_address(address)
    problem = no_server(address)
    if problem or own or _is_allowed(address, port):
        return problem
    where = f"[{address}]" if address.version == 6 else str(address)
    where = f"{where}:{port}" if port else where
    if address.is_loopback:
        return f"{where} is the console's own machine. {_remedy(where)}"
    if port is not None and _is_admin(address, port):
        return f"{where} is an Emberline admin port. {_remedy(where)}"
    return ""


def check_connection(made: socket.socket, *, own: bool) -> socket.socket:
    """Return the new connection, or raise ForbiddenAddressError before a byte is sent."""
    peer = made.getpeername()
    reason = address_problem(str(peer[0]), int(peer[1]), own=own)
    if reason:
        made.close()
        increment("outbound_refused")
        raise ForbiddenAddressError(reason)
    return made


def pool_classes(*, own: bool) -> dict[str, Any]:
    """Return urllib3 `PoolManager.pool_classes_by_scheme` that check each new connection."""
    return dict(_OWN if own else _GUARDED)


def _pools(own: bool) -> dict[str, Any]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return check_connection(super()._new_conn(), own=own)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return check_connection(super()._new_conn(), own=own)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


_GUARDED, _OWN = _pools(own=False), _pools(own=True)


def _remedy(where: str) -> str:
    return f"If this is intended, set {SETTING}={where} on the console."


def _is_allowed(address: Address, port: int | None) -> bool:
    return any(
        rule.network.version == address.version
        and address in rule.network
        and (rule.port is None or rule.port == port)
        for rule in _allowed
    )


def _is_admin(address: Address, port: int) -> bool:
    return (address, port) in _admins(int(time.monotonic() / _ADMINS_S))


@lru_cache(maxsize=1)
def _admins(_moment: int) -> frozenset[tuple[Address, int]]:
    """Cached for a period instead of queried for each connection."""
    named = (address.rpartition(":") for find in _admin_addresses for address in find())
    return frozenset(
        (address, int(port))
        for host, _, port in named
        if port.isdecimal()
        for address in _resolved(host.strip("[]"))
    )


def _resolved(host: str) -> set[Address]:
    numeric = numeric_address(host)
    if numeric is not None:
        return {inner_address(numeric)}
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {inner_address(ipaddress.ip_address(str(row[4][0]).partition("%")[0])) for row in rows}
