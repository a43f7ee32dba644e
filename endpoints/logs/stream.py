"""Server-sent events of a log.

A response ends after `STREAM_S` and the browser resumes after the last event id, so that restarts
and expired logins lose no line. A thread outlives its response by at most one poll. At most `MOST`
logs are followed per process.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

from django.http import StreamingHttpResponse

from console.provisioners.base import ProvisionError
from endpoints.logs.sources import LogLine

CONTENT_TYPE = "text/event-stream"
STREAM_S = 20.0
MAX_STREAMS = 32
AGAIN_MS = 1000
_MAX_BUFFERED = 1000  # lines buffered for a slow client
_BATCH = 200

Lines = Callable[[threading.Event], Iterator[LogLine]]

_free = threading.BoundedSemaphore(MAX_STREAMS)


async def stream(lines: Lines, seconds: float = STREAM_S) -> AsyncIterator[bytes]:
    """Yield events. For one consumer task."""
    yield f"retry: {AGAIN_MS}\n\n".encode()
    if not _free.acquire(blocking=False):
        yield problem(f"{MAX_STREAMS} log streams are already open; close one of them.")
        return
    pump = _Pump(lines, asyncio.get_running_loop())
    try:
        async for batch in pump.batches(seconds):
            yield b"".join(event(line) for line in batch)
        if pump.problem:
            yield problem(pump.problem)
    finally:
        pump.stop.set()
        _free.release()


class _Pump:
    """Moves lines from a blocking thread to the event loop."""

    def __init__(self, lines: Lines, loop: asyncio.AbstractEventLoop) -> None:
        self.stop = threading.Event()
        self.problem = ""
        self._loop = loop
        self._queue: asyncio.Queue[LogLine | None] = asyncio.Queue(_MAX_BUFFERED)
        threading.Thread(target=self._run, args=(lines,), name="log", daemon=True).start()

    async def batches(self, seconds: float) -> AsyncIterator[list[LogLine]]:
        """Yield batches until the log ends or `seconds` have passed, also for slow clients."""
        end = self._loop.time() + seconds
        ended = False
        while not ended and (left := end - self._loop.time()) > 0:
            try:
                batch = [await asyncio.wait_for(self._queue.get(), left)]
            except TimeoutError:
                return
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            ended = None in batch
            yield [line for line in batch if line is not None]

    def _run(self, lines: Lines) -> None:
        try:
            for line in lines(self.stop):
                if self.stop.is_set() or not self._put(line):
                    return
        except ProvisionError as error:
            self.problem = error.message
        self._put(None)

    def _put(self, line: LogLine | None) -> bool:
        """Return False once the reader is gone."""
        put = self._queue.put(line)
        try:
            waiting = asyncio.run_coroutine_threadsafe(put, self._loop)
        except RuntimeError:  # the loop was closed at process exit
            put.close()
            return False
        try:
            waiting.result(STREAM_S)
        except (TimeoutError, CancelledError):
            waiting.cancel()
            return False
        return True


def event(line: LogLine) -> bytes:
    mark = f"id: {line.at}\n" if line.at else ""
    kind = "event: anew\n" if line.anew else "event: ended\n" if line.ended else ""
    return f"{mark}{kind}data: {json.dumps(line.text)}\n\n".encode()


def problem(text: str) -> bytes:
    return f"event: problem\ndata: {json.dumps(text)}\n\n".encode()


def response(events: Any) -> StreamingHttpResponse:
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingHttpResponse(events, content_type=CONTENT_TYPE, headers=headers)
