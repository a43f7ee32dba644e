"""ASGI middleware that limits request bodies by sender, size and rate before Django reads them.

Django buffers a whole body before authentication. Anonymous requests are limited to a form's size;
authenticated ones to bytes per request, per user and in total. Stalled bodies are aborted. Nothing
after the body has a deadline (streams stay open). http_protocol.py limits the heads.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from asgiref.sync import sync_to_async

from console.core.counters import increment
from console.core.errors import error_document

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
Identify = Callable[[Any], str]
"""Return the sender of a request by its ASGI scope; "" if anonymous."""

_GONE: Final[Message] = {"type": "http.disconnect"}
_LINGER_S = 2.0


@dataclass(frozen=True, slots=True)
class BodyLimits:
    # A login form is below 1 KiB.
    anonymous: int = 32 * 1024
    # Twice the largest JSON or form (4 MiB, console/api/content.py).
    request: int = 8 * 1024 * 1024
    # Concurrent bytes beyond `anonymous`: per user and in total.
    person: int = 16 * 1024 * 1024
    total: int = 64 * 1024 * 1024
    # Every `step` bytes must arrive within `stall_s`.
    step: int = 64 * 1024
    stall_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    code: str
    detail: str
    remedy: str
    retry_after_s: int = 0


def limit_bodies(
    application: Application, identify: Identify, limits: BodyLimits | None = None
) -> Application:
    gate = _Gate(application, identify, limits or BodyLimits())

    async def around(scope: Any, receive: Receive, send: Send) -> None:
        await gate.serve(scope, receive, send)

    return around  # a function: uvicorn treats a bound method as ASGI 2


class _Gate:
    def __init__(self, application: Application, identify: Identify, limits: BodyLimits) -> None:
        self.application = application
        self.identify = identify
        self.limits = limits
        self.held: Counter[str] = Counter()  # bytes by user; changed by the event loop only

    async def serve(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        body = _Body(self, scope, receive)
        refusal = await body.declared()
        try:
            if refusal is None:
                await self.application(scope, body.receive, send)
                # Django sees a disconnect and sends no response.
                refusal = body.refusal
        finally:
            body.release()
        if refusal is not None:
            await _refuse(refusal, scope, receive, send)


class _Body:
    def __init__(self, gate: _Gate, scope: Any, receive: Receive) -> None:
        self._gate, self._limits = gate, gate.limits
        self._scope, self._receive = scope, receive
        self._seen = self._counted = 0
        self._sender: str | None = None
        self._whole = False
        self._step_end = 0
        self._deadline = 0.0
        self.refusal: Refusal | None = None

    async def declared(self) -> Refusal | None:
        return await self._judge(_content_length(self._scope))

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        loop = asyncio.get_running_loop()
        if self._seen >= self._step_end:
            self._step_end = self._seen + self._limits.step
            self._deadline = loop.time() + self._limits.stall_s
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            return self._give_up(_stalled(self._limits))
        self._seen += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        refusal = await self._judge(self._seen) or self._hold()
        return self._give_up(refusal) if refusal else message

    def release(self) -> None:
        held = self._gate.held
        held[self._sender or ""] -= self._counted
        held += Counter()  # drops zero entries
        self._counted = 0

    def _give_up(self, refusal: Refusal) -> Message:
        self.refusal, self._whole = refusal, True
        return _GONE

    async def _judge(self, size: int) -> Refusal | None:
        if size > self._limits.request:
            return _too_large(self._limits.request)
        if size <= self._limits.anonymous:
            return None
        if self._sender is None:
            try:
                identify = sync_to_async(self._gate.identify, thread_sensitive=False)
                self._sender = await identify(self._scope)
            except Exception as error:  # noqa: BLE001  (the page reports the error)
                return _unidentified(error)
        return None if self._sender else _anonymous(self._limits.anonymous)

    def _hold(self) -> Refusal | None:
        more = max(0, self._seen - self._limits.anonymous) - self._counted
        if more <= 0:
            return None
        held, sender = self._gate.held, self._sender or ""
        if held[sender] + more > self._limits.person or held.total() + more > self._limits.total:
            return _busy()
        held[sender] += more
        self._counted += more
        return None


def _content_length(scope: Any) -> int:
    for name, value in scope["headers"]:
        if name.lower() == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _too_large(most: int) -> Refusal:
    detail = f"The request body exceeds the limit of {most} bytes."
    return Refusal(413, "too_large", detail, "Send a smaller body.")


def _anonymous(most: int) -> Refusal:
    detail = f"The request body exceeds the limit of {most} bytes for requests without a login."
    remedy = "Log in, or send a valid API token, and repeat the request."
    return Refusal(413, "too_large_without_login", detail, remedy)


def _stalled(limits: BodyLimits) -> Refusal:
    detail = f"The request body stalled: less than {limits.step} bytes in {limits.stall_s:g} s."
    return Refusal(408, "body_stalled", detail, "Repeat the request over a faster connection.")


def _busy() -> Refusal:
    detail = "Too many large uploads are in progress."
    return Refusal(503, "too_many_uploads", detail, "Retry in 5 s.", 5)


def _unidentified(error: Exception) -> Refusal:
    detail = f"The sender could not be authenticated ({type(error).__name__})."
    return Refusal(503, "database_unavailable", detail, "Retry in 5 s.", 5)


async def _refuse(refusal: Refusal, scope: Any, receive: Receive, send: Send) -> None:
    """Respond, then briefly drain the body.

    Closing a connection with unread bytes resets it, and the client would not see the response.
    """
    increment("bodies_refused", reason=refusal.code)
    document = error_document(refusal.code, refusal.detail, refusal.remedy)
    api = scope.get("path", "").startswith("/api/")
    text = json.dumps(document) if api else f"{refusal.detail} {refusal.remedy}\n"
    kind = b"application/json" if api else b"text/plain; charset=utf-8"
    headers = [(b"content-type", kind), (b"connection", b"close")]
    if refusal.retry_after_s:
        headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
    try:
        async with asyncio.timeout(_LINGER_S):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})
