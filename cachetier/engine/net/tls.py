"""TLS context built from files and rebuilt when they change.

TLS 1.2 or newer. Inconsistent files are rejected by flag name at startup; later the last good
context stays in use. Failed handshakes are counted by reason. A new context applies to new
connections.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from cachetier.engine.errors import ConfigError
from console.processkit.listener import Failed, ServerContext

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """TLS files; with `client_ca`, clients must present a certificate issued by it."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class LiveContext:
    """TLS context of the last good files. Raise ConfigError if the initial files are bad."""

    def __init__(
        self,
        files: TlsFiles,
        failed: Failed = lambda _reason: None,
        *,
        certificates_optional: bool = False,
    ) -> None:
        self._files = files
        self._failed = failed
        self._verify = ssl.CERT_OPTIONAL if certificates_optional else ssl.CERT_REQUIRED
        self._seen = self._signatures()
        self.context = self._make()
        self.problem = ""  # why the newest files are not in use, "" if they are

    def renew(self) -> bool:
        """Check the files (a few stat calls); return whether there is a new context."""
        signatures = self._signatures()
        if signatures == self._seen and not self.problem:
            return False
        try:
            self.context = self._make()
        except ConfigError as error:
            if signatures != self._seen or str(error) != self.problem:
                log.error(
                    "New TLS files rejected; the previous certificate stays in use: %s", error
                )
            self._seen, self.problem = signatures, str(error)
            return False
        self._seen, self.problem = signatures, ""
        log.info("New TLS files loaded; they apply to new connections")
        return True

    def _signatures(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(
            map(file_signature, (self._files.cert, self._files.key, self._files.client_ca))
        )

    def _make(self) -> ssl.SSLContext:
        files = self._files
        context = ServerContext.make(self._failed)
        try:
            # Without a password callback OpenSSL would prompt on the terminal.
            context.load_cert_chain(files.cert, files.key, password="")
        except OSError as error:  # includes SSLError
            raise _file_error("--tls-cert", files.cert, files.key, error) from None
        if files.client_ca is not None:
            context.verify_mode = self._verify
            try:
                context.load_verify_locations(cafile=files.client_ca)
            except OSError as error:
                raise _file_error("--tls-client-ca", files.client_ca, None, error) from None
        return context


def file_signature(path: Path | None) -> tuple[int, int, int] | None:
    """Return a value that changes with the file or its link target (Kubernetes switches links)."""
    if path is None:
        return None
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _file_error(flag: str, path: Path, key: Path | None, error: OSError) -> ConfigError:
    """Build the error, naming both files: OpenSSL does not report which one is bad."""
    place = f"{flag} {path}" + (f" with --tls-key {key}" if key is not None else "")
    if isinstance(error, ssl.SSLError):
        words = (error.reason or "it contains no certificate").replace("_", " ").lower()
        return ConfigError(
            f"{place} is not usable ({words}): expected PEM, the key without a password"
        )
    return ConfigError(f"{place} cannot be read: {error.strerror}")
