"""Handshake failure reasons; the engines' tests produce real ones."""

from __future__ import annotations

import ssl

from console.processkit.listener import HANDSHAKE_REASONS, handshake_reason


def test_handshake_failure_reasons() -> None:
    def error(reason: str) -> ssl.SSLError:
        made = ssl.SSLError(1, reason)
        made.reason = reason
        return made

    for reason, counted in (
        ("HTTP_REQUEST", "not_tls"),
        ("PACKET_LENGTH_TOO_LONG", "not_tls"),
        ("UNSUPPORTED_PROTOCOL", "protocol_version"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "protocol_version"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "client_certificate_missing"),
        ("CERTIFICATE_VERIFY_FAILED", "client_certificate_refused"),
        ("TLSV1_ALERT_UNKNOWN_CA", "refused_by_client"),
        ("NO_SHARED_CIPHER", "other"),
    ):
        assert handshake_reason(error(reason)) == counted
        assert counted in HANDSHAKE_REASONS
