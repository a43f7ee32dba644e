"""Requests of the router itself to a worker, on its probe connection.

Each ends with an answer or an error within its timeout. A kept connection closed by the worker is
replaced once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from routing.engine.fleet.worker_connection import AnswerReceiver, WorkerConnection

if TYPE_CHECKING:
    from routing.engine.fleet.workers import Worker
    from routing.engine.http.http1 import ResponseHead

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024


class ProbeError(Exception):
    """The worker gave no valid answer; `refused`: nothing listens at its address, `silent`: none
    came in time.
    """

    def __init__(self, message: str, refused: bool = False, silent: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        self.silent = silent


class _ProbeAnswer(AnswerReceiver):
    __slots__ = ("_connection", "_pieces", "_size", "_status", "done")

    def __init__(self, connection: WorkerConnection) -> None:
        super().__init__()
        self.done: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._status = 0
        self._pieces: list[bytes] = []
        self._size = 0

    def answer_head(self, head: ResponseHead) -> bool:
        self._status = head.status
        return True

    def answer_body(self, _data: bytes, pieces: list[bytes]) -> None:
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if self._size > MAX_ANSWER_BYTES:
            self._connection.abandon()
            self._end(ProbeError("the response is too large"))

    def answer_chunk(self, data: bytes, piece: bytes) -> None:
        self.answer_body(data, [piece])

    def answer_done(self) -> None:
        if not self.done.done():
            self.done.set_result((self._status, b"".join(self._pieces)))

    def answer_lost(self, _code: str, message: str) -> None:
        self._end(ProbeError(message))

    def _end(self, error: ProbeError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


async def _connect(worker: Worker) -> WorkerConnection:
    made: asyncio.Future[WorkerConnection] = asyncio.get_running_loop().create_future()

    def failed(message: str, refused: bool) -> None:
        if not made.done():
            made.set_exception(ProbeError(message, refused))

    def connected(connection: WorkerConnection) -> None:
        if made.done():
            connection.close()
        else:
            made.set_result(connection)

    connecting = worker.probe_pool.connect(connected, failed)
    try:
        return await made
    finally:
        connecting.cancel()


async def _send_once(connection: WorkerConnection, head: bytes, body: bytes) -> tuple[int, bytes]:
    answer = _ProbeAnswer(connection)
    connection.send(answer, head, body)
    try:
        return await answer.done
    except asyncio.CancelledError:
        connection.abandon()
        raise


def _request_head(worker: Worker, path: str, body: bytes, lines: bytes) -> bytes:
    if not body:
        return f"GET {path} HTTP/1.1\r\n".encode() + worker.host_line + lines + b"\r\n"
    return (
        f"POST {path} HTTP/1.1\r\n".encode()
        + worker.host_line
        + lines
        + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    )


async def send_probe(
    worker: Worker, path: str, timeout_s: float, body: bytes = b"", lines: bytes = b""
) -> tuple[int, bytes]:
    """Return status and body of a GET, or of an idempotent JSON POST. Raise ProbeError.

    `lines`: additional header lines.
    """
    head = _request_head(worker, path, body, lines)
    try:
        async with asyncio.timeout(timeout_s):
            connection = worker.probe_pool.take()
            if connection is not None:
                try:
                    return await _send_once(connection, head, body)
                except ProbeError:
                    pass  # a kept connection may just have closed: retry on a new one
            return await _send_once(await _connect(worker), head, body)
    except TimeoutError:
        raise ProbeError("no response in time", silent=True) from None
