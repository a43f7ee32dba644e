"""Log lines as JSON on stderr: events at once, access lines in batches.

Promises that nothing here ever holds prompt text, keys or session names: callers pass facts by
name. Must not know what a request is.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import orjson

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Log:
    def __init__(self, level: str) -> None:
        self._level = LEVELS[level]
        self._batch: list[bytes] = []

    def enabled(self, level: str) -> bool:
        return LEVELS[level] >= self._level

    def event(self, level: str, event: str, **facts: Any) -> None:
        if self.enabled(level):
            self.flush()
            self._write(self._line(level, event, facts))

    def later(self, event: str, facts: dict[str, Any]) -> None:
        """An info line which may wait for the next flush."""
        self._batch.append(self._line("info", event, facts))

    def flush(self) -> None:
        if self._batch:
            lines, self._batch = b"".join(self._batch), []
            self._write(lines)

    @staticmethod
    def _line(level: str, event: str, facts: dict[str, Any]) -> bytes:
        line = {"time": round(time.time(), 3), "level": level, "event": event, **facts}
        return orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE)

    @staticmethod
    def _write(lines: bytes) -> None:
        try:
            sys.stderr.buffer.write(lines)
            sys.stderr.buffer.flush()
        except OSError:
            pass  # a full disk or a closed pipe must not stop requests
