"""Disk write health and retry schedule. Pure: the caller passes the time."""

from __future__ import annotations

import errno
import logging
import os
from enum import StrEnum
from typing import Final

log = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 1.0
_LAST_RETRY_S: Final = 60.0
# After this long without errors the retry delay resets.
_RETRY_RESET_S: Final = 120.0


class DiskState(StrEnum):
    """Only OK accepts writes; GONE and CLOSED serve no reads either."""

    OK = "ok"
    FULL = "full"  # no space left or quota reached
    READ_ONLY = "read_only"
    FAILING = "failing"  # I/O and other errors
    GONE = "gone"  # folder removed or replaced
    CLOSED = "closed"


class GoneError(OSError):
    """The folder is not the one that was opened."""


_STATES: Final = {
    errno.ENOSPC: DiskState.FULL,
    errno.EDQUOT: DiskState.FULL,
    errno.EFBIG: DiskState.FULL,
    errno.EROFS: DiskState.READ_ONLY,
    errno.EACCES: DiskState.READ_ONLY,
    errno.EPERM: DiskState.READ_ONLY,
    errno.ENOENT: DiskState.GONE,
    errno.ENOTDIR: DiskState.GONE,
    errno.ESTALE: DiskState.GONE,
    errno.ENODEV: DiskState.GONE,
}


def state_from_error(error: OSError) -> DiskState:
    if isinstance(error, GoneError):
        return DiskState.GONE
    return _STATES.get(error.errno or 0, DiskState.FAILING)


def describe_error(error: OSError) -> str:
    """Return a short reason without a path, for metric labels and messages."""
    number = error.errno or 0
    name = errno.errorcode.get(number, type(error).__name__)
    return f"{name}: {os.strerror(number) if number else error}"


class DiskHealth:
    """Disk state with retries; logs each change once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = DiskState.CLOSED
        self.reason = "not opened yet"
        self.retry_at = 0.0
        self._delay = _FIRST_RETRY_S
        self._ok_since = 0.0

    @property
    def is_ok(self) -> bool:
        return self.state is DiskState.OK

    def worked(self, now: float) -> None:
        if self.state is DiskState.OK:
            return
        if self.state is not DiskState.CLOSED:
            log.warning("Disk %s is writable again (was %s)", self._name, self.state.value)
        self.state, self.reason = DiskState.OK, ""
        self._ok_since = now

    def failed(self, error: OSError, now: float, doing: str) -> None:
        state = state_from_error(error)
        if self.state is DiskState.OK and now - self._ok_since >= _RETRY_RESET_S:
            self._delay = _FIRST_RETRY_S
        if state is not self.state:
            log.error(
                "Disk %s is %s (%s, while %s); values are kept in memory only until it recovers",
                self._name, state.value, describe_error(error), doing,
            )  # fmt: skip
        self.state, self.reason = state, f"{describe_error(error)} ({doing})"
        self.retry_at = now + self._delay
        self._delay = min(self._delay * 2, _LAST_RETRY_S)

    def closed(self, reason: str) -> None:
        self.state, self.reason = DiskState.CLOSED, reason

    def may_try(self, now: float) -> bool:
        return self.state not in (DiskState.OK, DiskState.CLOSED) and now >= self.retry_at
