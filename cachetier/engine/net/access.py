"""Logins: a password or two, one or two user names, and a limit on wrong passwords.

Theory of operation. Name and password are compared as digests, both always, so that the time a
refusal takes tells nothing. The right password is always accepted: all workers of a machine share
an address, so one of them with an old password must not lock out the others. Each address has so
many wrong tries, which grow back by the minute; a wrong one beyond that is LOCKED, and costs the
client a delay and its connection. Addresses are remembered in a bounded table; an IPv6 client is
known by its /64, which is what one host is given. Pure: the caller brings the clock.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum

_MAX_ADDRESSES = 4096


class LoginVerdict(StrEnum):
    """LOCKED is wrong as well, and one wrong try too many of that address."""

    OK = "ok"
    WRONG = "wrong"
    LOCKED = "locked"


class Gatekeeper:
    """Any of `passwords` is good; without any, `users` are let in with whatever they say."""

    def __init__(
        self, users: Sequence[str], passwords: Sequence[str], failures_per_minute: int
    ) -> None:
        self.users = tuple(users)
        self._names = [_digest(name.encode()) for name in users]
        self._passwords = [_digest(password.encode()) for password in passwords]
        self._open = not passwords
        self._most = float(failures_per_minute)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tries, as of when

    def judge(self, host: str, user: bytes, password: bytes, now: float) -> LoginVerdict:
        address = _address(host)
        known = False
        name = _digest(user)
        for one in self._names:
            known |= hmac.compare_digest(name, one)
        right = False
        word = _digest(password)
        for one in self._passwords:
            right |= hmac.compare_digest(word, one)
        if known and (right or self._open):
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
        """For logins from now on. Never without any: a node does not open itself."""
        if passwords:
            self._passwords = [_digest(password.encode()) for password in passwords]

    def wait_s(self, host: str, now: float) -> int:
        """Seconds until a wrong try of this address is WRONG again, at least 1."""
        missing = 1.0 - self._tries(_address(host), now)
        return max(1, math.ceil(missing * 60.0 / self._most))

    def _tries(self, address: str, now: float) -> float:
        left, then = self._left.get(address, (self._most, now))
        return min(self._most, left + (now - then) * self._most / 60.0)


def _digest(word: bytes) -> bytes:
    return hashlib.sha256(word).digest()


def _address(host: str) -> str:
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
