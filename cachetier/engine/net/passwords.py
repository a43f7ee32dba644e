"""The file with a node's password, read again when it changes: a restart would empty the cache.

The first line is the password. A second line is one that is still good, so that clients can be
given the new one before the old one ends. Promises that a file which cannot be read, or is empty,
leaves the last good passwords in force and is told once.
"""

from __future__ import annotations

import logging
from pathlib import Path

from cachetier.engine.errors import ConfigError
from cachetier.engine.net.tls import signature

log = logging.getLogger(__name__)

_MAX_LINES = 2


def read(path: str) -> tuple[str, ...]:
    """Raises ConfigError; the text holds no password."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"--password-file {path} cannot be read: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--password-file {path} is not text (UTF-8)") from None
    lines = tuple(line for line in text.splitlines() if line)
    if not lines:
        raise ConfigError(f"--password-file {path} is empty")
    if len(lines) > _MAX_LINES:
        raise ConfigError(
            f"--password-file {path} holds {len(lines)} lines: the password, and at most one more "
            "which is still good"
        )
    return lines


class PasswordFile:
    """`lines` were given at the start."""

    def __init__(self, path: str, lines: tuple[str, ...]) -> None:
        self._path = path
        self._seen = signature(Path(path)) if path else None
        self.lines = lines

    def renew(self) -> bool:
        """Look at the file, one system call; whether `lines` are new."""
        seen = signature(Path(self._path)) if self._path else None
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            lines = read(self._path)
        except ConfigError as error:
            log.error("the password stays as it was: %s", error)
            return False
        if lines == self.lines:
            return False
        self.lines = lines
        log.info("the password has changed, for logins from now on")
        return True
