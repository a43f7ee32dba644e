"""Prompt client against a scripted server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from endpoints.prompt.client import PromptAnswer, PromptRequest, ask, probe
from endpoints.prompt.stream import stream

KEY = "ebk_very-secret-key"


class Server:
    def __init__(self) -> None:
        self.status = 200
        self.chunks: list[bytes] = []
        self.hang = threading.Event()
        self.hangs = False
        self.pause_s = 0.0  # between the last chunk and the end of the body
        self.ended = threading.Event()
        self.drips = b""
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                server.seen.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(server.status)
                self.send_header("x-emberline-worker", "demo-worker-1")
                self.send_header("x-emberline-decision", "d-7")
                self.send_header("x-request-id", "r-1")
                self.end_headers()
                for chunk in server.chunks:
                    self.wfile.write(chunk)
                    self.wfile.flush()
                with contextlib.suppress(OSError):  # the caller had enough
                    while server.drips and not server.hang.wait(0.02):
                        self.wfile.write(server.drips)
                        self.wfile.flush()
                if server.hangs:
                    server.hang.wait(20)
                server.hang.wait(server.pause_s)
                server.ended.set()

            def log_message(self, *_args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        # Looks for its end often: each test waits for it.
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.hang.set()
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 32},
}
GOOD = [
    event({"choices": [{"text": "A "}]}),
    event({"choices": [{"text": "river", "finish_reason": "length"}]}),
    event({"choices": [], "usage": USAGE}),
    event(b"[DONE]"),
]


def send(server: Server, **facts: Any) -> PromptAnswer:
    return ask(
        PromptRequest(**{"url": server.url, "key": KEY, "model": "demo", "prompt": "Hi", **facts})
    )


def test_stream_is_read_and_measured(server: Server) -> None:
    server.chunks = GOOD
    answer = send(server, pin="demo-worker-1")
    assert answer.ok
    assert answer.text == "A river"
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (40, 32, 2)
    assert (answer.worker, answer.decision) == ("demo-worker-1", "d-7")
    assert answer.ttft_s is not None
    assert 0 <= answer.ttft_s <= answer.duration_s
    path, headers, body = server.seen[0]
    assert path == "/v1/completions"
    assert {k.lower(): v for k, v in headers.items()}["authorization"] == f"Bearer {KEY}"
    assert {k.lower(): v for k, v in headers.items()}["x-emberline-pin"] == "demo-worker-1"
    assert (body["model"], body["prompt"], body["stream"]) == ("demo", "Hi", True)


@pytest.mark.parametrize("streamed", [False, True])
def test_response_is_read_to_its_end(server: Server, streamed: bool) -> None:
    """A router accounts for a response at its end: its decision is complete only then."""
    server.chunks, server.pause_s = GOOD, 0.2

    async def last() -> PromptAnswer:
        request = PromptRequest(server.url, KEY, "demo", "Hi")
        answer = [item async for item in stream(request)][-1]
        assert isinstance(answer, PromptAnswer)
        return answer

    answer = asyncio.run(last()) if streamed else send(server)
    assert server.ended.is_set()
    assert (answer.text, answer.ok) == ("A river", True)


def test_first_token_of_a_chat_is_its_first_text(server: Server) -> None:
    server.chunks = [
        event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
        event({"choices": [{"delta": {"content": "Hello"}}]}),
        event(b"[DONE]"),
    ]
    answer = send(server, chat=True)
    assert (answer.text, answer.ok) == ("Hello", True)
    assert server.seen[0][0] == "/v1/chat/completions"
    assert server.seen[0][2]["messages"][0]["content"] == "Hi"


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        (GOOD[:2], "ended early"),
        ([event(b"[DONE]")], "ended early"),
        ([], "ended early"),
        ([GOOD[0], event({"error": {"message": "Engine died"}}), GOOD[3]], "Engine died"),
        ([event({"error": "x"})], "unknown"),
        ([b"nonsense\n", event(b"{not json"), event(b"5"), *GOOD], ""),
    ],
)
def test_truncated_response_is_an_error(server: Server, chunks: list[bytes], words: str) -> None:
    server.chunks = chunks
    answer = send(server)
    assert answer.ok is (words == "")
    assert words in answer.error


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (401, b'{"error": {"message": "No such key", "code": "invalid_api_key"}}', "invalid_api"),
        (503, b"<html>", "http"),
        (500, b'{"error": "flat"}', "http"),
        (500, b"[1]", "http"),
    ],
)
def test_errors_are_reported(server: Server, status: int, body: bytes, code: str) -> None:
    server.status, server.chunks = status, [body]
    answer = send(server)
    assert not answer.ok
    assert f"HTTP {status}" in answer.error
    assert answer.code.startswith(code)


def test_silence_ends_at_the_deadline(server: Server) -> None:
    server.hangs = True
    answer = send(server, deadline_s=0.3)
    assert answer.code == "timeout"
    assert "0 s" in answer.error


def test_endless_slow_bytes_end_at_the_deadline(server: Server) -> None:
    """Each piece comes in time, the whole does not."""
    server.chunks = [GOOD[0]] * 200_000
    answer = send(server, deadline_s=0.2)
    assert answer.code == "timeout"
    assert answer.text.replace("A ", "") == ""


def test_unreachable_router() -> None:
    answer = ask(PromptRequest("http://127.0.0.1:1", KEY, "demo", "Hi"))
    assert answer.code == "connection"
    answer = ask(PromptRequest("http://[", KEY, "demo", "Hi"))
    assert not answer.ok


def test_no_secret_is_logged_or_printed(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.chunks = GOOD
    with caplog.at_level(logging.DEBUG):
        send(server, prompt="very private")
    request = PromptRequest(server.url, KEY, "demo", "very private")
    everything = repr(request) + "".join(str(record.msg) for record in caplog.records)
    everything += "".join(str(record.args) for record in caplog.records)
    assert "very private" not in everything
    assert KEY not in everything


def test_proof_needs_a_real_token(server: Server) -> None:
    server.chunks = GOOD
    assert probe(server.url, KEY, "demo") == ""
    assert server.seen[0][2]["max_tokens"] == 1
    server.chunks = [
        event({"choices": [{"text": ""}]}),
        event({"choices": [], "usage": {**USAGE, "completion_tokens": 0}}),
        event(b"[DONE]"),
    ]
    assert "returned no token" in probe(server.url, KEY, "demo")
    server.status = 503
    assert "HTTP 503" in probe(server.url, KEY, "demo")
    assert "missing" in probe(server.url, "", "demo")


def test_invalid_worker_name_is_reported(server: Server) -> None:
    for pin in ("é", "a\r\nb"):
        assert ask(PromptRequest(server.url, KEY, "demo", "Hi", pin=pin)).code == "connection"
    assert not server.seen


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("drips", [b": still here\n\n", b"x", b"\n"])
def test_endless_slow_response_is_abandoned(server: Server, status: int, drips: bytes) -> None:
    server.status, server.drips = status, drips
    answer = ask(PromptRequest(server.url, KEY, "demo", "Hello", deadline_s=0.3))
    assert not answer.ok
    assert status == 500 or answer.code == "timeout"


def test_endless_line_is_not_buffered(server: Server) -> None:
    server.drips = b"data: " + b"x" * 400_000
    answer = ask(PromptRequest(server.url, KEY, "demo", "Hello", deadline_s=30))
    assert answer.code == "connection"
