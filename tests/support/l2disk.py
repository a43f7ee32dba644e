"""Disk tier driven by the test: events are processed on demand, holds are counted."""

from __future__ import annotations

import contextlib
import math
import queue
import shutil
from collections.abc import Callable
from pathlib import Path

from cachetier.engine.disk.tier import DiskTier
from cachetier.engine.disk.values import StoredValue
from cachetier.engine.store import Hold

MIB = 1024 * 1024
_PATIENCE_S = 60.0


class Disk:
    """`capacity` of 16 MiB gives segments of 2 MiB with 256 slots each."""

    def __init__(
        self, path: Path, capacity: int = 16 * MIB, queue_bytes: int = 4 * MIB, index: int = 8 * MIB
    ) -> None:
        self.news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.held = 0
        self.tier = DiskTier(
            path, capacity, queue_bytes=queue_bytes, max_index_bytes=index, post=self.news.put
        )

    def hear(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self.news.get_nowait()()

    def wait(self, done: Callable[[], bool], what: str = "the disk") -> None:
        self.hear()
        while not done():
            try:
                self.news.get(timeout=_PATIENCE_S)()
            except queue.Empty:
                raise AssertionError(f"nothing more was heard of {what}") from None
            self.hear()

    def settle(self) -> None:
        """Wait until all requests are written or declined."""
        self.wait(lambda: not any(True for _ in self.tier._under_way) and not self.held)

    def hold(self, value: bytes) -> Hold:
        def release() -> None:
            self.held -= 1

        self.held += 1
        half = len(value) // 2
        parts = [memoryview(value)[:half].toreadonly(), memoryview(value)[half:].toreadonly()]
        return Hold(parts, len(value), release)

    def offer(self, key: bytes, value: bytes, ends_at: float = math.inf) -> None:
        self.tier.offer(key, self.hold(value), ends_at)

    def put(self, key: bytes, value: bytes, ends_at: float = math.inf) -> None:
        self.offer(key, value, ends_at)
        self.settle()

    def get(self, key: bytes) -> bytes | None:
        """Read like a session: verified in a thread, then read from the file."""
        found = self.tier.find(key, 0.0)
        if found is None:
            return None
        if isinstance(found, Hold):
            value = found.tobytes()
            found.release()
            return value
        return self.read(found)

    def read(self, found: StoredValue) -> bytes | None:
        answers: list[bool] = []
        memory = bytearray(found.length)
        found.fetch(answers.append, [memoryview(memory)])
        self.wait(lambda: bool(answers))
        found.release()
        return bytes(memory) if answers[0] else None

    def close(self) -> None:
        self.tier.close(5.0)
        self.hear()


def as_if_killed(folder: Path, copy: Path) -> None:
    """Copy a folder in use, as a killed process would leave it.

    The janitor may remove a file meanwhile, which is a valid state too.
    """

    def one(source: str, target: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, target)
        return target

    shutil.copytree(folder, copy, copy_function=one)
