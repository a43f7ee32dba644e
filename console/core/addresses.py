"""Numeric addresses: the forms that systems accept, and those that are no server's."""

from __future__ import annotations

import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Metadata services outside the link-local range: AWS and Google (IPv6), Alibaba, Oracle.
_METADATA = tuple(
    map(ipaddress.ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192"))
)
# IPv6 prefixes that embed an IPv4 address in the last bits.
_TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))


def host_problem(host: str) -> str:
    """Return why no server can be asked at a host, "" for names and other addresses."""
    address = numeric_address(host)
    return "" if address is None else no_server(inner_address(address))


def no_server(address: Address) -> str:
    """Return why an address is no server's, "" if it may be one."""
    if address in _METADATA or address.is_link_local:
        return f"{address} is a link-local address, where clouds serve machine credentials."
    future = address.version == 4 and address.is_reserved  # too broad for IPv6
    if address.is_unspecified or address.is_multicast or future:
        return f"{address} is not the address of a host."
    return ""


def numeric_address(host: str) -> Address | None:
    """Parse a numeric address, including forms accepted by C libraries (127.1, 0x7f000001,
    2130706433); None for a name.
    """
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


def inner_address(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address):
        wrapped = address.ipv4_mapped or address.sixtofour
        if wrapped is not None:
            return wrapped
        if int(address) > 1 and any(address in network for network in _TRANSLATED):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
