"""Whose request this is, as an address: for limits, sessions and the trail.

Promises that nobody chooses it for themselves: `X-Forwarded-For` counts only as far as proxies
named in EMBERLINE_TRUSTED_PROXIES wrote it, read from the nearest one back.
"""

from __future__ import annotations

import ipaddress

from django.conf import settings
from django.http import HttpRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# One customer of a provider has at least this much of IPv6; addresses inside it cost them nothing.
_IPV6_PREFIX = 64


def client_address(request: HttpRequest) -> str:
    """The nearest address that is not one of our proxies; "" when the server knows none."""
    nearest = str(request.META.get("REMOTE_ADDR", ""))[:45]
    hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",")]
    for hop in reversed([hop for hop in hops if hop]):
        if not _trusted(nearest) or _parsed(hop) is None:
            break
        nearest = hop
    return nearest


def network(address: str) -> str:
    """What a limit counts for: an IPv4 address, or an IPv6 customer."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((parsed, _IPV6_PREFIX), strict=False))
    return str(parsed) if parsed is not None else address


def _trusted(address: str) -> bool:
    parsed = _parsed(address)
    return parsed is not None and any(parsed in proxy for proxy in settings.TRUSTED_PROXIES)


def _parsed(address: str) -> Address | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed
