"""Wait for a condition with a deadline, instead of a fixed sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], deadline_s: float = 90.0, what: str = "") -> T:
    """Return the first truthy result; raise AssertionError with the last one at the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"{what or condition} still {answer!r} after {deadline_s} s"
        threading.Event().wait(0.02)
