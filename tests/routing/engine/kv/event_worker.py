"""Worker without computation that tokenizes, caches and publishes events like vLLM.

A word is a token. What is wrong with it is set between requests: `publishes` (events of what it
stored), `keeps` (what it stored), `reports` (what it found cached), `template` (chats at all).
`before` is called with each prompt before it is answered. With several `ranks` each has a cache and
a publisher of its own, and takes what names it; the rest goes to them in turn.
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


class KvEventWorker(FakeWorker):
    def __init__(self, ranks: int = 1, **publisher: Any) -> None:
        super().__init__()
        self.publishers = [Publisher(rank=rank, **publisher) for rank in range(ranks)]
        self.publisher = self.publishers[0]
        self.answered_by: list[int] = []  # the rank of each prompt
        self.publishes = self.keeps = self.reports = self.template = True
        self.status = 200  # of answers to prompts
        self.resets = True
        self.before: Callable[[dict[str, Any]], None] = lambda _body: None
        self.caches: list[set[int]] = [set() for _ in range(ranks)]  # by the engine's names
        self.held = self.caches[0]
        self.script = self._script

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def stop(self) -> None:
        await super().stop()
        for publisher in self.publishers:
            await asyncio.to_thread(publisher.__exit__)

    def sent(self) -> list[dict[str, Any]]:
        """Prompts it was to answer, as they came."""
        return [r.json for r in self.requests if r.target.startswith(("/v1/chat", "/v1/comp"))]

    async def _script(self, talk: Conversation) -> None:
        path = talk.request.target
        if path == "/kv_event_sources":
            sources = {str(rank): one.source() for rank, one in enumerate(self.publishers)}
            await talk.json(sources)
        elif path == "/tokenize":
            ids = tokens_of(talk.request.json)
            await talk.json({"tokens": ids, "count": len(ids), "max_model_len": 4096})
        elif path == "/reset_prefix_cache":
            if self.resets:
                self.held.clear()  # its event comes with its next step
            await talk.json({"success": self.resets})
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
        named = talk.request.headers.get("x-data-parallel-rank")
        rank = int(named) if named else len(self.answered_by) % len(self.caches)
        self.answered_by.append(rank)
        held = self.caches[rank]
        cached = 0
        while cached < (len(ids) - 1) // BLOCK and names[cached] in held:
            cached += 1
        full = body.get("vllm_xargs", {}).get("kv_cache_report_mode") == "full"
        first = 0 if full else cached
        if self.publishes and first < len(names):
            self.publishers[rank].publish(stored(ids, first, block=BLOCK, salt=salt))
        if self.keeps:
            held.update(names)
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
