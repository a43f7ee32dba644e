"""A worker which computes nothing, but tokenizes, caches and tells of it as vLLM does.

A word is a token. What is wrong with it is set between requests: `tells` (events of what it
stored), `keeps` (what it stored), `reports` (what it found cached), `template` (chats at all).
`before` is called with each prompt before it is answered.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, Self

from tests.routing.engine.kv.builders import engine_hash, removed, stored
from tests.support.fake_worker import Conversation, FakeWorker
from tests.support.kv_publisher import Publisher

BLOCK = 16


def tokens_of(body: dict[str, Any]) -> list[int]:
    if isinstance(body.get("prompt"), list):
        return list(body["prompt"])
    text = body.get("prompt") or " ".join(one["content"] for one in body.get("messages", ()))
    return [zlib.crc32(word.encode()) % 50_000 for word in text.split()]


class TellingWorker(FakeWorker):
    def __init__(self, **publisher: Any) -> None:
        super().__init__()
        self.publisher = Publisher(**publisher)
        self.tells = self.keeps = self.reports = self.template = True
        self.status = 200  # of answers to prompts
        self.before: Callable[[dict[str, Any]], None] = lambda _body: None
        self.held: set[int] = set()  # by the engine's names
        self.script = self._script

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def stop(self) -> None:
        await super().stop()
        await asyncio.to_thread(self.publisher.__exit__)

    def sent(self) -> list[dict[str, Any]]:
        """Prompts it was to answer, as they came."""
        return [r.json for r in self.requests if r.target.startswith(("/v1/chat", "/v1/comp"))]

    async def _script(self, talk: Conversation) -> None:
        path = talk.request.target
        if path == "/kv_event_sources":
            await talk.json({"0": self.publisher.source()})
        elif path == "/tokenize":
            ids = tokens_of(talk.request.json)
            await talk.json({"tokens": ids, "count": len(ids), "max_model_len": 4096})
        elif path == "/reset_prefix_cache":
            self.held.clear()  # its event comes with its next step
            await talk.json({"success": True})
        elif self.status != 200:
            await talk.json({"error": {"message": "not today"}}, self.status)
        elif path == "/v1/chat/completions" and not self.template:
            await talk.json({"error": {"message": "no chat template"}}, 400)
        else:
            await self._complete(talk)

    async def _complete(self, talk: Conversation) -> None:
        body = talk.request.json
        self.before(body)
        ids = tokens_of(body)
        salt = body.get("cache_salt", "")
        names = [engine_hash(ids[: end * BLOCK], salt) for end in range(1, len(ids) // BLOCK + 1)]
        cached = 0
        while cached < (len(ids) - 1) // BLOCK and names[cached] in self.held:
            cached += 1
        full = body.get("vllm_xargs", {}).get("kv_cache_report_mode") == "full"
        first = 0 if full else cached
        if self.tells and first < len(names):
            self.publisher.publish(stored(ids, first, block=BLOCK, salt=salt))
        if self.keeps:
            self.held.update(names)
        details = {"cached_tokens": cached * BLOCK} if self.reports else None
        usage = {
            "prompt_tokens": len(ids),
            "completion_tokens": 1,
            "prompt_tokens_details": details,
        }
        choices = [{"index": 0, "text": "x", "message": {"role": "assistant", "content": "x"}}]
        await talk.json({"id": "c", "model": self.model, "choices": choices, "usage": usage})

    def evict(self, ids: list[int]) -> None:
        """Forget a prompt's blocks, the last first, and tell of it."""
        for end in range(len(ids) // BLOCK, 0, -1):
            self.held.discard(engine_hash(ids[: end * BLOCK]))
            self.publisher.publish(removed(ids[: end * BLOCK]))
