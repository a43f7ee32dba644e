"""The vendors' SDKs raise an error for a stream that was cut or that reports one.

`python -m console.launcher test-tools` fetches the SDKs.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.routing.engine.harness import admin, metric, router
from tests.support.cachenode import ROOT
from tests.support.fake_worker import Conversation, FakeWorker

PYTHON = ROOT / ".venv-clients" / "bin" / "python"
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
ERRORS = "emberline_router_request_errors_total"
CUT, INSIDE, REPORTED, WHOLE = "cut", "cut inside an event", "error event", "whole"
_RAISED = {
    CUT: ("APIError", "APIError", "APIError", "APIStatusError"),
    # Half an event is held where the router filters the usage event; elsewhere it was sent, nothing
    # can follow it, and the transport reports the end.
    INSIDE: ("APIError", "APIError", "APIConnectionError", "RemoteProtocolError"),
    REPORTED: ("APIError", "APIError", "APIError", "APIStatusError"),
    WHOLE: ("", "", "", ""),
}


def first_events(path: str) -> list[dict[str, Any]]:
    """Return a stream up to its first token, as vLLM writes it."""
    known = {"id": "c", "created": 1, "model": "m"}
    if path == "/v1/chat/completions":
        delta = {"index": 0, "delta": {"content": "one"}, "finish_reason": None}
        return [{**known, "object": "chat.completion.chunk", "choices": [delta]}]
    if path == "/v1/completions":
        choice = {"index": 0, "text": "one", "finish_reason": None, "logprobs": None}
        return [{**known, "object": "text_completion", "choices": [choice]}]
    if path == "/v1/responses":
        answer = {"id": "r", "object": "response", "error": None, "model": "m", "output": []}
        delta = {"item_id": "i", "output_index": 0, "content_index": 0, "delta": "one"}
        return [
            {"type": "response.created", "response": answer, "sequence_number": 0},
            {"type": "response.output_text.delta", "logprobs": [], "sequence_number": 1, **delta},
        ]
    usage = {"input_tokens": 5, "output_tokens": 0}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"}
    block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "one"}
    return [
        {"type": "message_start", "message": {**message, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
    ]


def encode(data: dict[str, Any]) -> bytes:
    name = b"event: %b\n" % data["type"].encode() if "type" in data else b""
    return b"%bdata: %b\n\n" % (name, json.dumps(data).encode())


def error_event(path: str) -> bytes:
    """Return an error event as vLLM writes it, with what follows it."""
    if path == "/v1/messages":
        return encode({"type": "error", "error": {"type": "internal_error", "message": "broke"}})
    error = {"message": "broke", "type": "InternalServerError", "param": None, "code": 500}
    return encode({"error": error}) + b"data: [DONE]\n\n"


async def answer(talk: Conversation) -> None:
    path, how = talk.request.target, talk.request.headers["x-ending"]
    await talk.stream_head()
    for data in first_events(path):
        await talk.chunk(encode(data))
    if how == INSIDE:
        await talk.chunk(b'data: {"id":')
    if how in (CUT, INSIDE):
        talk.writer.write_eof()
        return
    await talk.chunk(error_event(path) if how == REPORTED else b"data: [DONE]\n\n")
    await talk.stream_end()


async def stream(url: str) -> list[dict[str, Any]]:
    driver = ROOT / "tests" / "support" / "sdk_driver.py"
    argv = (PYTHON, driver, url, ",".join(PATHS), ",".join(_RAISED))
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.skipif(
    not PYTHON.is_file(), reason="NO SDKs HERE: `python -m console.launcher test-tools`"
)
async def test_incomplete_stream_is_raised() -> None:
    health = {"interval_s": 0.05, "eject_after": 1000}
    async with FakeWorker() as worker, router(worker, health=health) as server:
        worker.script = answer
        found = await stream(f"http://{server.listen}")
        decisions = (await admin(server, "/decisions?limit=100")).json["decisions"]
        errors = await metric(server, ERRORS, reason="broken_stream")
    wanted = [
        {"ending": how, "path": path, "text": "one", "raised": raised}
        for how, all_raised in _RAISED.items()
        for path, raised in zip(PATHS, all_raised, strict=True)
        for _ in range(2)
    ]
    assert [{**one, "raised": one["raised"][0]} for one in found] == wanted
    for one in found:
        if one["ending"] == CUT:
            assert "The response was cut off" in one["raised"][1]
        if one["ending"] == REPORTED:
            assert "broke" in one["raised"][1]
    decisions.sort(key=lambda one: one["time"])
    shown = [one["error"] for one in decisions]
    assert shown == ["" if one["ending"] == WHOLE else "broken_stream" for one in found]
    assert errors == sum(one["ending"] != WHOLE for one in found)
