"""JSON log lines on stderr: events at once, access lines in batches.

No prompt text, keys or session names. A slow reader never blocks the loop: pipes are written only
when writable, in atomic pieces; overflow of the bounded queue is dropped and counted.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections import deque
from typing import Any

import orjson

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
STDERR = 2
# POSIX: a writable pipe accepts this much atomically.
_PIECE_BYTES = select.PIPE_BUF
_BATCH_BYTES = 32 * 1024  # flush threshold of access lines; the clock flushes too
_QUEUE_BYTES = 1024 * 1024
_EVENTS_MORE_BYTES = 64 * 1024  # reserved for events


class Log:
    """Log writer. `dropped`: lines by kind."""

    def __init__(self, level: str, fd: int = STDERR) -> None:
        self._level = LEVELS[level]
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._batch_bytes = 0
        self._unreported = 0
        self.dropped = {"access": 0, "event": 0}

    def enabled(self, level: str) -> bool:
        return LEVELS[level] >= self._level

    def event(self, level: str, event: str, **facts: Any) -> None:
        if self.enabled(level):
            self._add("event", self._line(level, event, facts), _QUEUE_BYTES + _EVENTS_MORE_BYTES)
            self.flush()

    def later(self, event: str, facts: dict[str, Any]) -> None:
        line = self._line("info", event, facts)
        self._add("access", line, _QUEUE_BYTES)
        self._batch_bytes += len(line)
        if self._batch_bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        self._batch_bytes = 0
        self._write_for(0)

    def close(self, timeout_s: float = 1.0) -> None:
        """Flush, waiting briefly for the reader."""
        self._write_for(timeout_s)

    def _add(self, kind: str, line: bytes, limit: int) -> None:
        if self._bytes + len(line) > limit:
            self.dropped[kind] += 1
            self._unreported += 1
            return
        self._lines.append(line)
        self._bytes += len(line)

    @staticmethod
    def _line(level: str, event: str, facts: dict[str, Any]) -> bytes:
        line = {"time": round(time.time(), 3), "level": level, "event": event, **facts}
        return orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE)

    def _write_for(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        piece = b""
        try:
            whole = stat.S_ISREG(os.fstat(self._fd).st_mode)
            while self._lines:
                if not whole and not self._writable(until):
                    return
                piece = self._piece(1 << 30 if whole else _PIECE_BYTES)
                self._write(piece)
                if not self._lines and self._unreported:
                    lines, self._unreported = self._unreported, 0
                    line = self._line("warning", "log_lines_dropped", {"lines": lines})
                    self._add("event", line, _QUEUE_BYTES)
        except OSError:  # a full disk or a closed pipe must not fail requests
            self.dropped["event"] += piece.count(b"\n") + len(self._lines)
            self._lines.clear()
            self._bytes = 0

    def _writable(self, until: float) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        ready = poll.poll(max(until - time.monotonic(), 0) * 1000)
        return bool(ready)

    def _piece(self, limit: int) -> bytes:
        """Return whole lines up to the limit, or a part of a longer line."""
        first = self._lines.popleft()
        if len(first) > limit:
            self._lines.appendleft(first[limit:])
            return first[:limit]
        piece = [first]
        size = len(first)
        while self._lines and size + len(self._lines[0]) <= limit:
            size += len(self._lines[0])
            piece.append(self._lines.popleft())
        return b"".join(piece)

    def _write(self, piece: bytes) -> None:
        written = os.write(self._fd, piece)
        self._bytes -= written
        if written < len(piece):
            self._lines.appendleft(piece[written:])
