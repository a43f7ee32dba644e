"""Why a connection to a cache stopped being useful. Never leaves `cachetier.client`."""

from __future__ import annotations


class CacheError(Exception):
    """`reason` is a stable word for counters."""

    reason = "error"


class TimedOutError(CacheError):
    """The deadline passed."""

    reason = "timeout"


class UnreachableError(CacheError):
    """No connection, or the connection was cut."""

    reason = "unreachable"


class BrokenError(CacheError):
    """What came is not RESP, or not what was asked for: the connection is out of step."""

    reason = "protocol"


class DeniedError(CacheError):
    """Wrong or missing password: asking again will not help until somebody changes it."""

    reason = "denied"
