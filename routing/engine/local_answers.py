"""Requests that the router answers itself: health, models, preflights, unknown paths, adapters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import orjson

from routing.engine.access.paths import UNKNOWN, is_common_path, unknown_refusal
from routing.engine.errors import Refusal
from routing.engine.fleet.adapters import LOAD, UNLOAD, with_plain_path
from routing.engine.http.cors import is_preflight, preflight_lines

if TYPE_CHECKING:
    from routing.engine.config import Key
    from routing.engine.http.http1 import RequestHead
    from routing.engine.protocols import ClientSide
    from routing.engine.router import Router

HEALTH_PATHS = (b"/health", b"/ping")
_MODELS_PATH = b"/v1/models"


def _is_adapter_order(path: bytes) -> bool:
    return (unquote_to_bytes(path) if b"%" in path else path) in (LOAD, UNLOAD)


class LocalAnswers:
    """Answers without a worker, or from all of them."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._orders: set[asyncio.Task[None]] = set()  # adapter orders under way

    async def _order_adapter(self, client: ClientSide, head: RequestHead, body: bytes) -> None:
        """Load or unload an adapter at all workers."""
        lines = b""
        if self._router.keys.open and head.authorization:
            lines = b"authorization: " + head.authorization + b"\r\n"
        try:
            status, answer = await self._router.adapters.apply(
                unquote_to_bytes(head.path), body, lines
            )
        except Refusal as refusal:
            self._router.refused(refusal)
            client.reply_error(refusal, head)
            return
        except Exception as error:  # noqa: BLE001 - this task is not awaited: its client would hang
            self._router.log.event("error", "adapter_order_failed", error=repr(error))
            client.reply_error(Refusal("internal_error", "The request failed."), head)
            return
        self._router.metrics.count(self._router.metrics.other, status)
        lines = b"" if answer.startswith(b"{") else b"content-type: text/plain\r\n"
        client.reply(status, answer, head, lines)

    def answers(self, client: ClientSide, head: RequestHead, key: Key, body: bytes | None) -> bool:
        """Answer a request that no worker needs to see; return False for all others."""
        path = head.path
        if head.method == b"POST" and is_common_path(path):
            return False
        lines = b""
        if path in HEALTH_PATHS or (path == _MODELS_PATH and head.method in (b"GET", b"HEAD")):
            status, answer = self._read(path, key)
        elif is_preflight(head):
            try:
                lines = preflight_lines(head, self._router.config.allowed_origins)
            except Refusal as refusal:
                self._router.refused(refusal)
                client.reply_error(refusal, head)
                return True
            status, answer = 200, b""
        elif not key.admin and self._router.paths.access(path) == UNKNOWN:
            unknown = unknown_refusal(head.method, path)
            self._router.refused(unknown)
            client.reply_error(unknown, head)
            return True
        elif body and head.method == b"POST" and _is_adapter_order(path):
            order = self._order_adapter(client, head, body)
            task = asyncio.get_running_loop().create_task(order)
            self._orders.add(task)
            task.add_done_callback(self._orders.discard)
            return True
        else:
            return False
        self._router.metrics.count(self._router.metrics.other, status)
        client.reply(status, answer, head, lines)
        return True

    def _read(self, path: bytes, key: Key) -> tuple[int, bytes]:
        if path in HEALTH_PATHS:
            return (200 if self._router.table.eligible or self._router.table.waits else 503), b""
        models: dict[str, dict[str, object]] = {}
        for worker in self._router.table.workers.values():
            for model in worker.models:
                models.setdefault(str(model.get("id")), model)
        if not models and self._router.config.model:
            models[self._router.config.model] = {
                "id": self._router.config.model,
                "object": "model",
                "created": int(self._router.config_time),
                "owned_by": "emberline",
            }
        listed = [
            with_plain_path(item)
            for name, item in models.items()
            if key.models is None or name in key.models
        ]
        return 200, orjson.dumps({"object": "list", "data": listed})
