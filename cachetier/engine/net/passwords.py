"""Password file, reread on change: a restart would empty the cache.

The first line is the password, an optional second line one that is still valid during rotation. If
the file is unreadable or empty, the last passwords stay valid and the problem is logged once.
"""

from __future__ import annotations

import logging
from pathlib import Path

from cachetier.engine.errors import ConfigError
from cachetier.engine.net.tls import file_signature

log = logging.getLogger(__name__)

_MAX_LINES = 2


def read_passwords(path: str) -> tuple[str, ...]:
    """Read the passwords; raise ConfigError, whose text contains no password."""
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
            f"--password-file {path} holds {len(lines)} lines: expected the password and at most "
            "one previous password"
        )
    return lines


class PasswordFile:
    """Watched password file; `lines` are its initial contents."""

    def __init__(self, path: str, lines: tuple[str, ...]) -> None:
        self._path = path
        self._seen = file_signature(Path(path)) if path else None
        self.lines = lines

    def renew(self) -> bool:
        """Check the file (one stat call); return whether `lines` changed."""
        seen = file_signature(Path(self._path)) if self._path else None
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            lines = read_passwords(self._path)
        except ConfigError as error:
            log.error("Password file rejected; the previous passwords stay valid: %s", error)
            return False
        if lines == self.lines:
            return False
        self.lines = lines
        log.info("Password changed; it applies to new logins")
        return True
