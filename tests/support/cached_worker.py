"""Scripted worker with an LRU prefix cache: blocks of 16 tokens, tokens of 4 bytes."""

from __future__ import annotations

import asyncio
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
        self.paced = False  # the router reads each event by itself, as from a real engine

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
            parts = [json.dumps(body.get("tools") or []), body.get("system") or ""]
            message = body.get("messages") or body["input"]
            parts += [one["role"] + "\n" + one["content"] for one in message]
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
        number = talk.request.headers["x-request-id"]
        if body.get("stream"):
            await self._stream(talk, number, body, usage)
            return
        answer = {"object": "text_completion", "choices": [], "usage": usage}
        await talk.json({"id": f"cmpl-{number}", **answer})

    async def _stream(
        self, talk: Conversation, number: str, body: dict[str, Any], usage: dict[str, Any]
    ) -> None:
        """Answer in events as vLLM does."""
        await talk.stream_head()
        for one in _EVENTS[talk.request.target](number, usage):
            if one.get("choices") == [] and "stream_options" not in body:
                continue
            name = f"event: {one['type']}\n" if "type" in one else ""
            await self._pace()
            await talk.chunk(f"{name}data: {json.dumps(one)}\n\n".encode())
        if talk.request.target not in ("/v1/messages", "/v1/responses"):
            await talk.chunk(b"data: [DONE]\n\n")
        await self._pace()
        await talk.stream_end()

    async def _pace(self) -> None:
        for _ in range(10 if self.paced else 0):  # of the event loop, which the router shares
            await asyncio.sleep(0)


def _choices(number: str, usage: dict[str, Any]) -> list[dict[str, Any]]:
    def one(text: str, finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        return {"id": f"chatcmpl-{number}", "choices": [choice]}

    return [one("a", None), one("b", "stop"), {"id": "c", "choices": [], "usage": usage}]


def _messages(number: str, usage: dict[str, Any]) -> list[dict[str, Any]]:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    counts = {"input_tokens": usage["prompt_tokens"] - cached, "output_tokens": 1}
    message = {"id": f"chatcmpl-{number}", "content": [], "usage": counts}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "message_delta", "usage": {**counts, "cache_read_input_tokens": cached}},
        {"type": "message_stop"},
    ]


def _responses(number: str, usage: dict[str, Any]) -> list[dict[str, Any]]:
    found = {"id": f"resp_{number[::-1]}"}
    counts = {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"],
        "output_tokens": 1,
    }
    return [
        {"type": "response.created", "response": found},
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.completed", "response": {**found, "usage": counts}},
    ]


_EVENTS = {
    "/v1/completions": _choices,
    "/v1/chat/completions": _choices,
    "/v1/messages": _messages,
    "/v1/responses": _responses,
}
