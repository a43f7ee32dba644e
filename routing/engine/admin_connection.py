"""HTTP connection of the admin port: bounded requests, one answer, close."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from routing.engine.errors import Refusal
from routing.engine.http.http1 import RequestHead, parse_request

if TYPE_CHECKING:
    from routing.engine.admin import AdminHandler

_MAX_HEAD_BYTES = 16_384
_MAX_BODY_BYTES = 8 * 1024 * 1024  # /explain takes a whole request
_TIMEOUT_S = 10.0


class AdminConnection(asyncio.Protocol):
    def __init__(self, admin: AdminHandler) -> None:
        self._admin = admin
        self._data = bytearray()
        self._head: RequestHead | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answered = False
        self._answering: asyncio.Task[None] | None = None
        self._charged = 0  # bytes of the router's buffer budget
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(_TIMEOUT_S, self._transport.abort)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._admin.budget.hold(self._charged, 0)
        self._charged = 0
        if self._timer is not None:
            self._timer.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        if self._answered or self._answering is not None:
            return
        self._data += data
        try:
            if len(self._data) > _MAX_HEAD_BYTES:  # /metrics must work when the budget is exhausted
                self._hold(len(self._data))
            if self._head is None and not self._read_head():
                return
            head = self._head
            assert head is not None
            if head.chunked or head.length > _MAX_BODY_BYTES:
                raise Refusal(
                    "body_too_large",
                    "The admin port accepts small bodies with Content-Length only.",
                )
        except Refusal as refusal:
            self._write(refusal.kind.status, b"application/json", refusal.body())
            return
        if len(self._data) >= max(head.length, 0):
            self._answering = asyncio.get_running_loop().create_task(self._answer(head))

    async def _answer(self, head: RequestHead) -> None:
        body, self._data = bytes(self._data), bytearray()
        self._write(*await self._admin.answer(head, body))

    def _hold(self, size: int) -> None:
        if not self._admin.budget.hold(self._charged, size):
            raise self._admin.budget.full()
        self._charged = size

    def _read_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end > _MAX_HEAD_BYTES or (end < 0 and len(self._data) > _MAX_HEAD_BYTES):
            raise Refusal("headers_too_large", "The request's head is too large.")
        if end < 0:
            return False
        raw = bytes(self._data[: end + 2])
        self._head = parse_request(raw)
        self._admin.refuse_browsers(raw, self._head.path)
        del self._data[: end + 4]
        return True

    def _write(self, status: int, content_type: bytes, body: bytes) -> None:
        self._answered = True
        only_head = self._head is not None and self._head.method == b"HEAD"
        self._transport.write(
            b"HTTP/1.1 %d -\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b"
            % (status, content_type, len(body), b"" if only_head else body)
        )
        self._transport.close()
