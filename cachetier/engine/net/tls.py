"""TLS of a node: a context made of files, and made again when they change.

Promises TLS 1.2 or newer; that files which do not fit together are refused naming the flag, at
start, and later leave what was good in use; and that a failed handshake is counted with its reason.
A new context is for connections from then on: nobody is cut. Must not know sockets or sessions.
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
    """`client_ca`: who connects must show a certificate of it."""

    cert: Path
    key: Path
    client_ca: Path | None = None


def _unheard(_reason: str) -> None:
    """Nobody counts."""


class LiveContext:
    """`context` is of the files as they were at the last good look. Raises ConfigError at first."""

    def __init__(
        self, files: TlsFiles, failed: Failed = _unheard, *, certificates_optional: bool = False
    ) -> None:
        self._files = files
        self._failed = failed
        self._verify = ssl.CERT_OPTIONAL if certificates_optional else ssl.CERT_REQUIRED
        self._seen = self._look()
        self.context = self._make()
        self.problem = ""  # why the newest files are not in use, "" if they are

    def renew(self) -> bool:
        """Look at the files, a few system calls; whether there is a new context."""
        seen = self._look()
        if seen == self._seen and not self.problem:
            return False
        try:
            self.context = self._make()
        except ConfigError as error:
            if seen != self._seen or str(error) != self.problem:
                log.error("new TLS files are not used, the last good ones are: %s", error)
            self._seen, self.problem = seen, str(error)
            return False
        self._seen, self.problem = seen, ""
        log.info("new TLS files are in use for new connections")
        return True

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(signature, (self._files.cert, self._files.key, self._files.client_ca)))

    def _make(self) -> ssl.SSLContext:
        files = self._files
        context = ServerContext.make(self._failed)
        try:
            # Without a password of our own OpenSSL would ask the terminal for one.
            context.load_cert_chain(files.cert, files.key, password="")
        except OSError as error:  # SSLError is one
            raise _refused("--tls-cert", files.cert, files.key, error) from None
        if files.client_ca is not None:
            context.verify_mode = self._verify
            try:
                context.load_verify_locations(cafile=files.client_ca)
            except OSError as error:
                raise _refused("--tls-client-ca", files.client_ca, None, error) from None
        return context


def signature(path: Path | None) -> tuple[int, int, int] | None:
    """Changes when the file does, also when a link is turned to another one (Kubernetes does)."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _refused(flag: str, path: Path, key: Path | None, error: OSError) -> ConfigError:
    """Both files are named: OpenSSL does not say which one it means."""
    place = f"{flag} {path}" + (f" with --tls-key {key}" if key is not None else "")
    if isinstance(error, ssl.SSLError):
        words = (error.reason or "no certificate in it").replace("_", " ").lower()
        return ConfigError(
            f"{place} cannot be used ({words}): give PEM, the key without a password"
        )
    return ConfigError(f"{place} cannot be read: {error.strerror}")
