"""Whose request this is, as an address: for limits, sessions and the trail.

As the server saw it. The server itself (uvicorn) reads `X-Forwarded-For`, and only as far as
proxies named in FORWARDED_ALLOW_IPS wrote it; the header here would let callers choose.
"""

from __future__ import annotations

import ipaddress

from django.http import HttpRequest

# One customer of a provider has at least this much of IPv6; addresses inside it cost them nothing.
_IPV6_PREFIX = 64


def client_address(request: HttpRequest) -> str:
    """ "" when the server knows none."""
    return str(request.META.get("REMOTE_ADDR", ""))[:45]


def network(address: str) -> str:
    """What a limit counts for: an IPv4 address, or an IPv6 customer."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_PREFIX), strict=False))
