"""Scripted worker with an LRU prefix cache: blocks of 16 tokens, tokens of 4 bytes."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

from tests.support.fake_worker import Conversation, FakeWorker

BLOCK = 16
TOKEN_BYTES = 4


class CachedWorker(FakeWorker):
    def __init__(self, blocks: int = 1_000_000, model: str = "m") -> None:
        super().__init__(model)
        self.blocks = blocks
        self.cache: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self.computed = 0
        self.reports = True
        self.script = self._complete
        self.metrics = f'vllm:cache_config_info{{block_size="{BLOCK}"}} 1\n'
        self.held_back: Any = None  # an event that answers wait for

    def cached(self, names: list[tuple[object, ...]]) -> int:
        return next((at for at, name in enumerate(names) if name not in self.cache), len(names))

    def keep(self, names: list[tuple[object, ...]]) -> None:
        for name in reversed(names):
            self.cache[name] = None
            self.cache.move_to_end(name)
        while len(self.cache) > self.blocks:
            self.cache.popitem(last=False)

    async def _complete(self, talk: Conversation) -> None:
        if talk.request.target == "/reset_prefix_cache":
            self.cache.clear()
            await talk.json({"success": True})
            return
        body = talk.request.json
        text = body.get("prompt")
        if text is None:
            parts = [json.dumps(body.get("tools") or [])]
            parts += [one["role"] + "\n" + one["content"] for one in body["messages"]]
            text = "\n".join(parts)
        seed = (body.get("model"), body.get("cache_salt"))
        data = text.encode()
        tokens = -(-len(data) // TOKEN_BYTES)
        step = BLOCK * TOKEN_BYTES
        names = [(seed, data[: at * step]) for at in range(1, tokens // BLOCK + 1)]
        cached = self.cached(names[: (tokens - 1) // BLOCK]) * BLOCK
        self.computed += tokens - cached
        if self.held_back is not None:
            await self.held_back.wait()
        self.keep(names)
        usage: dict[str, Any] = {
            "prompt_tokens": tokens,
            "completion_tokens": 1,
            "total_tokens": tokens + 1,
        }
        if self.reports:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        await talk.json({"id": "c", "object": "text_completion", "choices": [], "usage": usage})
