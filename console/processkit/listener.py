"""Server contexts which say why a handshake failed, for every process of ours that speaks TLS.

Promises that each failed handshake is told once, with a reason out of a closed list, so that it can
be a label. Must not know files, flags or sockets.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

# Why a client's handshake failed, as counted. A client which just goes away is not counted.
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


def handshake_reason(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    # Some versions of OpenSSL call plain text a record layer failure with that version number.
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
    """Loops drop a failed handshake without telling anybody: here is the only place to see it."""

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
    """`failed(reason)` hears of each; TLS 1.2 or newer, no renegotiation."""

    sslobject_class = _Session
    failed: Failed

    @classmethod
    def make(cls, failed: Failed) -> ServerContext:
        """Without a certificate yet."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context.failed = failed
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        return context
