"""Login check: one or two passwords, one or two user names, and rate limiting of wrong passwords.

Names and passwords are compared as digests, always both, against timing attacks. The right password
is always accepted: workers of a machine share an address, so one with an old password must not lock
out the others. Each address has a number of wrong attempts that refill per minute; further ones are
LOCKED, which costs the client a delay and its connection. Addresses are kept in a bounded table,
IPv6 clients by their /64. The caller passes the time.

The password file is reread on change: a restart would empty the cache. Its first line is the
password, an optional second line one that is still valid during rotation. If the file is unreadable
or empty, the last passwords stay valid and the problem is logged once.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import math
from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from cachetier.engine.errors import ConfigError
from cachetier.engine.net.tls import file_signature

log = logging.getLogger(__name__)

_MAX_ADDRESSES = 4096
_MAX_LINES = 2  # of the password file


class LoginVerdict(StrEnum):
    """Login result; LOCKED is a wrong login beyond the address's limit."""

    OK = "ok"
    WRONG = "wrong"
    LOCKED = "locked"


class Gatekeeper:
    """Login checker; any of `passwords` is valid. Without any, `users` need no password."""

    def __init__(
        self, users: Sequence[str], passwords: Sequence[str], failures_per_minute: int
    ) -> None:
        self.users = tuple(users)
        self._names = [_digest(name.encode()) for name in users]
        self._passwords = [_digest(password.encode()) for password in passwords]
        self._open = not passwords
        self._most = float(failures_per_minute)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # attempts left, at time

    def judge(self, host: str, user: bytes, password: bytes, now: float) -> LoginVerdict:
        address = _limit_key(host)
        is_known = False
        name = _digest(user)
        for candidate in self._names:
            is_known |= hmac.compare_digest(name, candidate)
        right = False
        word = _digest(password)
        for candidate in self._passwords:
            right |= hmac.compare_digest(word, candidate)
        if is_known and (right or self._open):
            return LoginVerdict.OK
        left = self._tries(address, now)
        if left < 1.0:
            return LoginVerdict.LOCKED
        self._left[address] = (left - 1.0, now)
        self._left.move_to_end(address)
        if len(self._left) > _MAX_ADDRESSES:
            self._left.popitem(last=False)
        return LoginVerdict.WRONG

    def renew(self, passwords: Sequence[str]) -> None:
        """Replace the passwords for new logins; an empty list is ignored."""
        if passwords:
            self._passwords = [_digest(password.encode()) for password in passwords]

    def wait_s(self, host: str, now: float) -> int:
        """Return the seconds (at least 1) until the address has another attempt."""
        missing = 1.0 - self._tries(_limit_key(host), now)
        return max(1, math.ceil(missing * 60.0 / self._most))

    def _tries(self, address: str, now: float) -> float:
        left, then = self._left.get(address, (self._most, now))
        return min(self._most, left + (now - then) * self._most / 60.0)


def _digest(word: bytes) -> bytes:
    return hashlib.sha256(word).digest()


def _limit_key(host: str) -> str:
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


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
            f"--password-file {path} has {len(lines)} lines: expected the password "
            "and at most one previous password"
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
        signature = file_signature(Path(self._path)) if self._path else None
        if signature == self._seen:
            return False
        self._seen = signature
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
