"""The id of the request being served: taken from the caller when it looks sane, else made here.

Promises that it is the same in the answer's header, in every log line and in the audit trail.
"""

from __future__ import annotations

import logging
import re
import uuid
from contextvars import ContextVar

HEADER = "X-Request-ID"
_SANE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_current: ContextVar[str] = ContextVar("emberline_request_id", default="")


def current() -> str:
    """The id of this context's request; empty outside of one."""
    return _current.get()


def begin(offered: str) -> str:
    """Accept the caller's id, or make one; it is the current one from here on."""
    chosen = offered if _SANE.fullmatch(offered) else uuid.uuid4().hex
    _current.set(chosen)
    return chosen


class LogFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = _current.get() or "-"
        return True
