"""Waiting for a condition, with a deadline: tests never sleep for a fixed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], deadline_s: float = 30.0, what: str = "") -> T:
    """The condition's first true answer; AssertionError with its last answer at the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"{what or condition} still {answer!r} after {deadline_s} s"
        threading.Event().wait(0.02)
