"""Which addresses the console may connect to on behalf of a URL that a user set.

One guard for webhooks, metrics sources, Alertmanagers and kubeconfigs: the address that was really
connected to is judged, whatever the name resolved to a moment before and however it was written.
Metadata services, link-local and unroutable addresses are always refused; this machine and the
admin ports of our own routers and cache nodes unless the operator allows them
(EMBERLINE_OUTBOUND_ALLOW). Private networks are allowed: that is where a Prometheus lives. URLs of
the console's own settings are `own`: they may lead to this machine. Knows no Django.
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

from console.core.counters import count

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

SCHEMES = ("http", "https")
SETTING = "EMBERLINE_OUTBOUND_ALLOW"
# Metadata services which are not in the link-local range: AWS and Google by IPv6, Alibaba, Oracle.
_METADATA = tuple(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192"),
    )
)
# Where an IPv4 address travels in the last bits of an IPv6 address.
_TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
_ADMINS_S = 10.0


class ForbiddenAddressError(Exception):
    """Nothing was sent. Not an OSError: nobody may take it for a network that is away."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """An entry of EMBERLINE_OUTBOUND_ALLOW; `port` None means every port."""

    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    port: int | None = None


def parse_allowed(text: str) -> Allowed:
    """ADDRESS or NETWORK, optionally with :PORT (IPv6 then in brackets). Raises ValueError."""
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


def configure(allowed: tuple[Allowed, ...]) -> None:
    """What the operator allows; read once, from the environment."""
    global _allowed
    _allowed = allowed


def register_admin_addresses(find: Callable[[], Collection[str]]) -> None:
    """`find` returns HOST:PORT of the admin ports of our own programs. Called from AppConfig.ready,
    and asked in the thread that connects."""
    _admin_addresses.append(find)


def why_not_url(url: str, *, query: bool = False) -> str:
    """What is wrong with a URL somebody gave, "" when nothing is; looks no name up. `query`: it may
    have one, since nothing is put behind it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "This is no address."
    if parts.scheme not in SCHEMES:
        return "It begins with neither http:// nor https://."
    if not parts.hostname or port == 0:
        return "It names no host."
    if "@" in parts.netloc:
        return "It holds a name or a password, which would be shown wherever the address is."
    if not query and (parts.query or parts.fragment):
        return "It holds a question mark or a hash: only the part before those is an address."
    if not url.isascii() or any(mark.isspace() or not mark.isprintable() for mark in url):
        return "It holds a space, or a character which no address has."
    return why_forbidden(parts.hostname, port or (443 if parts.scheme == "https" else 80))


def why_forbidden(host: str, port: int | None = None, *, own: bool = False) -> str:
    """Why nothing may be sent to this address; "" also for a name, which is judged when it is
    connected to. `own`: the URL comes from the console's settings."""
    address = _numeric(host)
    if address is None:
        return ""
    address = _inner(address)
    if address in _METADATA or address.is_link_local:
        return f"{address} is a link-local address, where clouds keep their machines' credentials."
    future = address.version == 4 and address.is_reserved  # of IPv6 that holds too much
    if address.is_unspecified or address.is_multicast or future:
        return f"{address} is no machine's address."
    if own or _is_allowed(address, port):
        return ""
    where = f"[{address}]" if address.version == 6 else str(address)
    where = f"{where}:{port}" if port else where
    if address.is_loopback:
        return f"{where} is the console's own machine. {_remedy(where)}"
    if port is not None and _is_admin(address, port):
        return f"{where} is an admin port of Emberline's own. {_remedy(where)}"
    return ""


def checked(made: socket.socket, *, own: bool) -> socket.socket:
    """The new connection, or ForbiddenAddressError before a byte is sent."""
    peer = made.getpeername()
    reason = why_forbidden(str(peer[0]), int(peer[1]), own=own)
    if reason:
        made.close()
        count("outbound_refused")
        raise ForbiddenAddressError(reason)
    return made


def pool_classes(*, own: bool) -> dict[str, Any]:
    """For `PoolManager.pool_classes_by_scheme` of urllib3: each new connection is judged."""
    return dict(_OWN if own else _GUARDED)


def _pools(own: bool) -> dict[str, Any]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return checked(super()._new_conn(), own=own)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return checked(super()._new_conn(), own=own)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


_GUARDED, _OWN = _pools(own=False), _pools(own=True)


def _remedy(where: str) -> str:
    return f"If that is meant, the console's operator sets {SETTING}={where}."


def _numeric(host: str) -> Address | None:
    """Also of the forms only a C library takes: 127.1, 0x7f000001, 2130706433; None for a name."""
    plain = host.partition("%")[0]
    if plain.rstrip(".").lower() == "localhost" or plain.lower().endswith(".localhost"):
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        return ipaddress.ip_address(plain)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(plain))
    except (OSError, UnicodeError):
        return None


def _is_allowed(address: Address, port: int | None) -> bool:
    return any(
        one.network.version == address.version
        and address in one.network
        and (one.port is None or one.port == port)
        for one in _allowed
    )


def _is_admin(address: Address, port: int) -> bool:
    return (address, port) in _admins(int(time.monotonic() / _ADMINS_S))


@lru_cache(maxsize=1)
def _admins(_moment: int) -> frozenset[tuple[Address, int]]:
    """Looked up once in a while, not for each connection."""
    named = (known.rpartition(":") for find in _admin_addresses for known in find())
    return frozenset(
        (address, int(port))
        for host, _, port in named
        if port.isdecimal()
        for address in _resolved(host.strip("[]"))
    )


def _resolved(host: str) -> set[Address]:
    found = _numeric(host)
    if found is not None:
        return {_inner(found)}
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {_inner(ipaddress.ip_address(str(row[4][0]).partition("%")[0])) for row in rows}


def _inner(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address):
        wrapped = address.ipv4_mapped or address.sixtofour
        if wrapped is not None:
            return wrapped
        if int(address) > 1 and any(address in network for network in _TRANSLATED):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
