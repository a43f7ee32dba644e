"""Run supervisord so that file system errors neither end it nor block a program.

Stock supervisord reports a log record that it cannot write to its own stderr, exits if that fails
too (both are on the same full disk), and stops reading the output of a program whose log cannot
be rotated, which blocks that program. Here such a record is dropped and counted; each record is
tried, and the first one written is preceded by a line with the count and the cause.

Each change of a process state is announced (processkit.changes), so that the console observes it
at once.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from supervisor import events, loggers, supervisord

from console.processkit.changes import PROGRAM, ChangeSender, socket_path

_MODE = 0o600


class LossyFileHandler(loggers.Handler):
    """Log file with `backups` predecessors, named as supervisor expects.

    Used for supervisord's own log and for program output. No method raises OSError.
    """

    def __init__(
        self, filename: str, mode: str = "ab", max_bytes: int = 0, backups: int = 0
    ) -> None:
        super().__init__()
        del mode  # always appends
        self._path = Path(filename)
        self._max_bytes, self._backups = max_bytes, backups
        self._fd = -1
        self._size = 0
        self.dropped = 0
        self._why = ""
        with suppress(OSError):
            self._open()

    def emit(self, record: loggers.LogRecord) -> None:
        line = self._encoded(record)
        try:
            self._write(line)
        except OSError as error:
            self.dropped += 1
            self._why = error.strerror or str(error)

    def flush(self) -> None:
        """Do nothing: every record is written at once."""

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with suppress(OSError):
                os.close(fd)

    def reopen(self) -> None:
        self.close()
        with suppress(OSError):
            self._open()

    def remove(self) -> None:
        self.close()
        with suppress(OSError):
            self._path.unlink()

    def _encoded(self, record: loggers.LogRecord) -> bytes:
        if self.fmt == "%(message)s" and isinstance(record.msg, bytes):
            return record.msg  # program output, unchanged
        text: str = self.fmt % record.asdict()
        return text.encode(errors="backslashreplace")

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            self._open()
        if 0 < self._max_bytes <= self._size:
            self._rotate()
        notice = f"[{self.dropped} log records dropped: {self._why}]\n" if self.dropped else ""
        try:
            self._append(notice.encode() + data)
        except OSError:
            with suppress(OSError):  # remove a partial record
                os.ftruncate(self._fd, self._size)
            self.close()
            raise
        self.dropped = 0

    def _append(self, data: bytes) -> None:
        rest = data
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self._size += len(data)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, _MODE)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        """Rotate; drop records if the folder allows no rename, so that the log stays bounded."""
        names = [self._path, *(Path(f"{self._path}.{n}") for n in range(1, self._backups + 1))]
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                newer.replace(older)
        if not self._backups:
            self._path.unlink(missing_ok=True)
        self.close()
        self._open()


class _LossyStream(io.TextIOBase):
    """stderr, where supervisord also reports errors; it may be closed or on a full disk."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            os.write(2, text.encode(errors="backslashreplace"))
        return len(text)


def announce_states(sender: ChangeSender) -> None:
    """Announce the processes of state events. supervisord clears subscriptions when it starts, so
    that the function that sends events is wrapped instead.
    """
    notify = events.notify

    def notify_and_send(event: events.Event) -> None:
        if isinstance(event, events.ProcessStateEvent):
            sender.send(f"{PROGRAM}{event.process.config.name}")
        elif isinstance(event, events.Tick5Event):
            sender.resend()
        notify(event)

    events.notify = notify_and_send


def main() -> None:
    """Run with supervisord's own command line."""
    announce_states(ChangeSender(socket_path()))
    loggers.FileHandler = loggers.RotatingFileHandler = LossyFileHandler
    sys.stdout = sys.stderr = _LossyStream()
    supervisord.main()


if __name__ == "__main__":
    main()
