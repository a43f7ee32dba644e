"""Test CA and certificates, created once for a test run."""

from __future__ import annotations

import functools
import ssl
from pathlib import Path

import trustme


class Authority:
    """CA; `write` writes a server's or client's certificate and key as PEM."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    @functools.cached_property
    def pem(self) -> bytes:
        return bytes(self._ca.cert_pem.bytes())

    def write_ca(self, path: Path) -> Path:
        path.write_bytes(self.pem)
        return path

    def write(self, folder: Path, *names: str, stem: str = "server") -> tuple[Path, Path]:
        """Write certificate (with chain) and key of a new identity."""
        issued = self._ca.issue_cert(*names)
        cert, key = folder / f"{stem}.crt", folder / f"{stem}.key"
        # Key first: a concurrent reader gets a mismatched pair, never a wrong identity.
        key.write_bytes(issued.private_key_pem.bytes())
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return cert, key

    def server(self, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names).configure_cert(context)
        return context

    def client(self) -> ssl.SSLContext:
        """Return a context that trusts only this CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._ca.configure_trust(context)
        return context

    def issue_for(self, context: ssl.SSLContext, *names: str) -> None:
        """Use a certificate of this CA for the context's connections."""
        self._ca.issue_cert(*names).configure_cert(context)


@functools.cache
def authority() -> Authority:
    return Authority()


@functools.cache
def stranger() -> Authority:
    """Return another CA, which no client trusts."""
    return Authority()
