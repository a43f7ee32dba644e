"""TLS server contexts with counted handshake failures, and browser request checks.

Each failed handshake is reported once, with a reason from a closed list, usable as a label.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable
from typing import Final

# Reasons of failed handshakes, as counted. A client that disconnects is not counted.
HANDSHAKE_REASONS = (
    "not_tls",
    "protocol_version",
    "client_certificate_missing",
    "client_certificate_refused",
    "refused_by_client",
    "other",
)
_NOT_TLS = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER")
_VERSION = ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW")

Failed = Callable[[str], None]
# Content types that browsers send to another origin without a preflight request.
_FORM_TYPES: Final = frozenset(
    {"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}
)
_HEALTH: Final = ("/healthz", "/readyz")  # accessible under any host name, without a secret
Header = Callable[[str], str | None]  # returns a header's value by its lower-case name


def handshake_reason(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    # Some versions of OpenSSL report plain text as a record layer failure with that version number.
    if reason in _NOT_TLS or reason == "PACKET_LENGTH_TOO_LONG":
        return "not_tls"
    if reason in _VERSION or reason.endswith("ALERT_PROTOCOL_VERSION"):
        return "protocol_version"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "client_certificate_missing"
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return "client_certificate_refused"
    return "refused_by_client" if "_ALERT_" in reason else "other"


class _Session(ssl.SSLObject):
    """Reports handshake failures here, because event loops drop them silently."""

    context: ServerContext

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self.context.failed(handshake_reason(error))
            raise


class ServerContext(ssl.SSLContext):
    """Calls `failed(reason)` per failure; TLS 1.2 or newer, no renegotiation."""

    sslobject_class = _Session
    failed: Failed

    @classmethod
    def make(cls, failed: Failed) -> ServerContext:
        """Return a context without a certificate."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context.failed = failed
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        return context


def is_loopback(host: str) -> bool:
    """Return whether an address or host name is loopback."""
    bare = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost" or bare.endswith(".localhost")


def request_problem(path: str, header: Header, *, is_local: bool, is_order: bool) -> str:
    """Return why a request is rejected, "" if accepted; health checks are always accepted.

    `is_local`: the port listens on loopback. `is_order`: the request changes something.
    """
    if path in _HEALTH:
        return ""
    host = header("host") or ""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if is_local and name and not is_loopback(name):
        return (
            f"this port accepts local requests only, not for host {name[:100]!r}: "
            "use 127.0.0.1 or localhost"
        )
    if header("origin") is not None or header("sec-fetch-site") not in (None, "none"):
        return "browser requests to the admin port are rejected: use curl or another client"
    kind = (header("content-type") or "").partition(";")[0].strip().lower()
    if is_order and kind in _FORM_TYPES:
        return f"content-type {kind} is rejected, as a web page could send it: omit it"
    return ""
