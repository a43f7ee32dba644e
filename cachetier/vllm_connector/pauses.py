"""Lets our threads work while the engine has nothing to do but ask them whether they are done.

A request that waits for L2 keeps vLLM's engine stepping; a step without a model to run is over at
once, and the next one begins: a loop which holds the interpreter's lock against the very threads
it waits for, five milliseconds at a time. So after a step that ran no model, the scheduler's thread
waits here for news, not longer than a fraction of any model's step. Must not know vLLM.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# A step as short as this ran no model.
_EMPTY_STEP_S = 0.002
# Never longer than this at once: requests arrive in between, and are only seen by the next step.
_PAUSE_S = 0.002


class Pauses:
    """`is_waiting` says whether somebody waits for us; `news` is for any thread."""

    def __init__(self, is_waiting: Callable[[], bool]) -> None:
        self._is_waiting = is_waiting
        self._came = threading.Event()
        self._stepped_at = 0.0

    def news(self) -> None:
        self._came.set()

    def after_step(self) -> None:
        """On the scheduler's thread, at the end of each step."""
        if time.monotonic() - self._stepped_at < _EMPTY_STEP_S and self._is_waiting():
            self._came.wait(_PAUSE_S)
        self._came.clear()
        self._stepped_at = time.monotonic()
