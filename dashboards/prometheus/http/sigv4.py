"""AWS Signature Version 4 for the headers of one request."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qsl, quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Scope:
    region: str
    service: str


def sign(
    credentials: Credentials,
    scope: Scope,
    method: str,
    url: str,
    body: bytes,
    at: datetime,
    more: Mapping[str, str],
) -> dict[str, str]:
    """Return the authentication headers. `more` are further headers to sign; the host is always
    signed.
    """
    moment = at.strftime("%Y%m%dT%H%M%SZ")
    own = {"X-Amz-Date": moment}
    if credentials.token:
        own["X-Amz-Security-Token"] = credentials.token
    headers = {"host": _host(url), **more, **own}
    canonical, signed = _canonical(method, url, headers, body)
    place = f"{moment[:8]}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join((_ALGORITHM, moment, place, _digest(canonical.encode())))
    signature = hmac.new(_key(credentials.secret, place), text.encode(), "sha256").hexdigest()
    own["Authorization"] = (
        f"{_ALGORITHM} Credential={credentials.key_id}/{place}, "
        f"SignedHeaders={signed}, Signature={signature}"
    )
    return own


def _host(url: str) -> str:
    """Return the Host header: without the scheme's default port."""
    parts = urlsplit(url)
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return parts.netloc.removesuffix(usual) if usual else parts.netloc


def _canonical(method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    parts = urlsplit(url)
    # The canonical path is encoded once more than the sent path, for every service except S3.
    path = quote(parts.path or "/", safe="/-_.~")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in pairs)
    named = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signed = ";".join(sorted(named))
    lines = (
        method,
        path,
        "&".join(f"{name}={value}" for name, value in query),
        *(f"{name}:{named[name]}" for name in sorted(named)),
        "",
        signed,
        _digest(body),
    )
    return "\n".join(lines), signed


def _key(secret: str, place: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in place.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
