"""OpenAI-compatible worker on a real socket, scripted by the test.

HTTP/1.1 with keep-alive, /health, /v1/models and /metrics, and server-sent events for
`"stream": true`. Tests change attributes between requests, wait for events and inspect requests. It
has no timing of its own, unlike the simulator.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from typing import Any


class Received:
    """One request as received."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def read_request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while True:
            size = int((await reader.readuntil(b"\r\n")).strip(), 16)
            body += (await reader.readexactly(size + 2))[:-2]
            if size == 0:
                break
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    return Received(method, target, headers, body)


class Conversation:
    """One request being answered; passed to a test's script."""

    def __init__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.writer = writer
        self.gone = asyncio.Event()  # client disconnected

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, payload: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(payload), payload))

    async def stream_head(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    async def stream_end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def json(self, data: Any, status: int = 200) -> None:
        await self.text(json.dumps(data), status, b"application/json")

    async def text(self, text: str, status: int = 200, kind: bytes = b"text/plain") -> None:
        body = text.encode()
        await self.send(
            b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (status, kind, len(body), body)
        )

    def cut(self) -> None:
        """Reset the connection."""
        self.writer.transport.abort()


Script = Callable[[Conversation], Any]


def event(text: str, model: str = "m") -> bytes:
    data = {
        "id": "cmpl-1",
        "object": "chat.completion.chunk",
        "model": model,
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
    }
    return b"data: " + json.dumps(data).encode() + b"\n\n"


class FakeWorker:
    """`async with FakeWorker() as worker:` listens on a free port within the block."""

    tls: ssl.SSLContext | None = None  # for workers created while it is set

    def __init__(self, model: str = "m", words: int = 3, host: str = "127.0.0.1") -> None:
        self.host = host
        self.model = model
        self.words = words
        self.healthy = True
        self.cached_tokens = 0
        self.metrics = ""  # body of /metrics
        self.script: Script | None = None  # replaces responses except health and models
        self.requests: list[Received] = []
        self.cancelled: list[Received] = []  # client disconnected before the end
        self.changed = asyncio.Condition()
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"

    async def __aenter__(self) -> FakeWorker:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; after `stop`, on the same port."""
        self._server = await asyncio.start_server(
            self._serve,
            self.host,
            self.port,
            ssl=self.tls,
            backlog=2048,  # uvicorn's default
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop like a killed process: close the listener and reset every connection."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait for the condition, which events of this worker must make true."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(condition)

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                request = await read_request(reader)
                await self._answer(request, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        talk = Conversation(request, writer)
        path = request.target.partition("?")[0]
        if path == "/health":
            await talk.json({}, 200 if self.healthy else 503)
            return
        if path == "/v1/models":
            models = [{"id": self.model, "object": "model", "owned_by": "fake"}]
            await talk.json({"object": "list", "data": models})
            return
        if path == "/metrics":
            await talk.text(self.metrics, 200 if self.metrics else 404)
            return
        self.requests.append(request)
        await self._notify()
        watch = asyncio.create_task(self._watch(reader, talk))
        script = self.script or self._default
        answer = asyncio.create_task(script(talk))
        try:
            await asyncio.wait({answer, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() or isinstance(answer.exception(), ConnectionError):
                self.cancelled.append(request)
                answer.cancel()
                await self._notify()
                raise ConnectionResetError
            await answer
        finally:
            watch.cancel()
            answer.cancel()
            await asyncio.gather(watch, answer, return_exceptions=True)

    @staticmethod
    async def _watch(reader: asyncio.StreamReader, talk: Conversation) -> None:
        """Return when the client disconnects; the router never pipelines, so no data can arrive."""
        try:
            data = await reader.read(1)
            assert not data, "bytes came before the answer was complete"
        except ConnectionError:
            pass
        talk.gone.set()

    async def _default(self, talk: Conversation) -> None:
        body = talk.request.json if talk.request.body else {}
        usage = {
            "prompt_tokens": len(talk.request.body) // 4,
            "completion_tokens": self.words,
            "total_tokens": len(talk.request.body) // 4 + self.words,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
        if not body.get("stream"):
            message = {"role": "assistant", "content": "word " * self.words}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            await talk.json({"id": "c", "model": self.model, "choices": choices, "usage": usage})
            return
        await talk.stream_head()
        for index in range(self.words):
            await talk.chunk(event(f"word{index} ", self.model))
        if (body.get("stream_options") or {}).get("include_usage"):
            data = json.dumps({"id": "c", "choices": [], "usage": usage}).encode()
            await talk.chunk(b"data: " + data + b"\n\n")
        await talk.chunk(b"data: [DONE]\n\n")
        await talk.stream_end()
