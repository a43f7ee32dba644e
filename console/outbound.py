"""Which addresses the console may connect to when a person named them.

Promises that a name which leads to a machine's own metadata service, to a link-local or to no real
address is refused by the address that was really connected to, whatever the name said a moment
before. Private and loopback addresses are allowed: that is where a Prometheus lives. Knows no room.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

SCHEMES = ("http", "https")
# Metadata services which are not in the link-local range: AWS and Google by IPv6, Alibaba, Oracle.
_METADATA = tuple(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192"),
    )
)
# Where an address of the old kind travels in the last bits of one of the new.
_TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48")))


class ForbiddenAddressError(Exception):
    """Nothing was sent. Not an OSError: nobody may take it for a network that is away."""


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
    return why_forbidden(parts.hostname)


def why_forbidden(host: str) -> str:
    """Why nothing may be sent to this numeric address; "" also for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    address = _inner(address)
    if address in _METADATA or address.is_link_local:
        return f"{address} is a link-local address, where clouds keep their machines' credentials."
    future = address.version == 4 and address.is_reserved  # of IPv6 that holds too much
    if address.is_unspecified or address.is_multicast or future:
        return f"{address} is no machine's address."
    return ""


def _inner(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if isinstance(address, ipaddress.IPv6Address):
        wrapped = address.ipv4_mapped or address.sixtofour
        if wrapped is not None:
            return wrapped
        if any(address in network for network in _TRANSLATED):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
