"""Decision journal: JSON lines in size-bounded files, written off the loop.

A slow or failing disk costs records (counted), never requests. Lines equal /decisions: keyed
hashes, no text. Files are readable by the owner only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import orjson

from routing.engine.config import JournalConfig
from routing.engine.observe.background_thread import BackgroundThread, yield_gil
from routing.engine.observe.decisions import Decision

QUEUE_LIMIT = 10_000
_BATCH_SIZE = 128
Show = Callable[[Decision], dict[str, Any]]


class Journal(BackgroundThread[tuple[Decision, Show]]):
    """Queue of finished decisions with their `Show`, which is called in the thread. `written`,
    `failed`: numbers of records, each written by one thread.
    """

    def __init__(self, config: JournalConfig) -> None:
        self.config = config
        self.written = 0
        self.failed = 0
        self.error = ""  # last write error; "" after a success
        self._fd = -1
        self._size = 0
        super().__init__("decisions", QUEUE_LIMIT, _BATCH_SIZE)

    def counts(self) -> dict[str, int]:
        return {"written": self.written, "failed": self.failed, "dropped": self.dropped}

    # -- runs in the thread

    def work(self, items: list[tuple[Decision, Show]]) -> None:
        lines = []
        for decision, show in items:
            lines.append(orjson.dumps(show(decision), option=orjson.OPT_APPEND_NEWLINE))
            yield_gil()
        data = b"".join(lines)
        try:
            self._make_room(len(data))
            while data:
                data = data[os.write(self._fd, data) :]
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            self.failed += len(items)
            self.error = error.strerror or str(error)
            self._give_up()
        else:
            self.written += len(items)
            self.error = ""

    def _make_room(self, size: int) -> None:
        if self._fd >= 0 and self._size + size > self.config.max_bytes // 2:
            self._close()
            self.config.file.replace(self.config.file.with_name(self.config.file.name + ".1"))
        if self._fd < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self.config.file, flags, 0o600)
            self._size = os.fstat(self._fd).st_size
            if self._size + size > self.config.max_bytes // 2 and self._size:
                self._make_room(size)

    def _give_up(self) -> None:
        """Truncate a partial write; the next batch retries from a clean line."""
        with contextlib.suppress(OSError):
            if self._fd >= 0:
                os.ftruncate(self._fd, self._size)
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
