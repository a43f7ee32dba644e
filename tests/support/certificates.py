"""Certificates of a CA of our own, made once for a test run."""

from __future__ import annotations

import functools
import ssl
from pathlib import Path

import trustme


class Authority:
    """One CA; `write` puts a server's or client's certificate and key into a folder as PEM."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    @functools.cached_property
    def pem(self) -> bytes:
        return bytes(self._ca.cert_pem.bytes())

    def write_ca(self, path: Path) -> Path:
        path.write_bytes(self.pem)
        return path

    def write(self, folder: Path, *names: str, stem: str = "server") -> tuple[Path, Path]:
        """Certificate (with chain) and key of a new identity."""
        issued = self._ca.issue_cert(*names)
        cert, key = folder / f"{stem}.crt", folder / f"{stem}.key"
        # The key first: who looks in between sees a pair which does not fit, never a wrong one.
        key.write_bytes(issued.private_key_pem.bytes())
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return cert, key

    def server(self, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names).configure_cert(context)
        return context

    def client(self) -> ssl.SSLContext:
        """Trusts this CA and nobody else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._ca.configure_trust(context)
        return context

    def issue_for(self, context: ssl.SSLContext, *names: str) -> None:
        """Show a certificate of this CA on this context's connections."""
        self._ca.issue_cert(*names).configure_cert(context)


@functools.cache
def authority() -> Authority:
    return Authority()


@functools.cache
def stranger() -> Authority:
    """Another CA, which nobody was told to trust."""
    return Authority()
