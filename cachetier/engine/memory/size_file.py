"""Memory size from a file: `--memory @FILE` resizes a running node when the file changes.

A missing or invalid file changes nothing and is logged once; a size the store rejects is retried.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from cachetier.engine.config import MIN_MEMORY, parse_size, read_memory_file
from cachetier.engine.errors import ConfigError
from cachetier.engine.store import Declined

log = logging.getLogger(__name__)

_POLL_INTERVAL_S = 1.0

# Apply a size; return the reason if rejected.
Resize = Callable[[int, float], Declined | None]


class MemoryFile:
    """Watched size file; `size` is the current size."""

    def __init__(self, path: str, size: int, resize: Resize) -> None:
        self._path = path
        self._size = size
        self._resize = resize
        self._told = ""

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL_S)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        try:
            wanted = parse_size(read_memory_file(self._path))
        except ConfigError as exc:
            self._tell(f"{exc}; the size stays {self._size} bytes")
            return
        if wanted == self._size:
            self._told = ""
            return
        if wanted < MIN_MEMORY:
            self._tell(f"{wanted} bytes in {Path(self._path).name} are too little: at least 1MiB")
            return
        declined = self._resize(wanted, now)
        if declined is not None:
            self._tell(f"cannot be {wanted} bytes large yet: {declined.detail or declined.reason}")
            return
        log.info("Resized from %d to %d bytes", self._size, wanted)
        self._size, self._told = wanted, ""

    def _tell(self, text: str) -> None:
        if text != self._told:
            log.warning("%s", text)
        self._told = text
