"""How much of a body is read at all, whoever sends it and wherever to.

Django keeps a body on disk before it asks who sends it. Promises that no more than MOST bytes of
one request get there: what says it is longer is refused unread, what does not say so is cut off.
ASGI, around the whole application; knows no route.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from console.counters import count

MOST: Final = 64 * 1024 * 1024

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]


def limited(application: Application, most: int = MOST) -> Application:
    async def around(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        if _declared(scope) > most:
            await _refuse(send, most)
            return
        seen, over = 0, False

        async def counted() -> Message:
            nonlocal seen, over
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                over = True
                return {"type": "http.disconnect"}
            return message

        await application(scope, counted, send)
        # Django answers nothing to whoever has gone, which is what it was told.
        if over:
            await _refuse(send, most)

    return around


def _declared(scope: Any) -> int:
    for name, value in scope["headers"]:
        if name.lower() == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


async def _refuse(send: Send, most: int) -> None:
    count("bodies_refused")
    facts: dict[str, Any] = {
        "code": "too_large",
        "detail": f"The body is too large; at most {most} bytes are read.",
        "field": None,
        "value": None,
        "remedy": "Send less.",
        "errors": [],
        "request_id": "",
    }
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(facts).encode()})
