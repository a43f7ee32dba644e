"""Client addresses for limits, sessions and the audit log.

The address is uvicorn's, which reads `X-Forwarded-For` only from proxies in FORWARDED_ALLOW_IPS;
reading the header here would allow spoofing.
"""

from __future__ import annotations

import ipaddress

from django.http import HttpRequest

# IPv6 customers get at least this prefix and can use any address inside it.
_IPV6_PREFIX = 64


def client_address(request: HttpRequest) -> str:
    """Return the address, "" if unknown."""
    return str(request.META.get("REMOTE_ADDR", ""))[:45]


def network_of(address: str) -> str:
    """Return the unit of rate limits: an IPv4 address or an IPv6 prefix."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_PREFIX), strict=False))
