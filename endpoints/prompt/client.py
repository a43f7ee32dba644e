"""Client of an endpoint's router: sends one prompt with the console's own key.

Every step has a deadline. Errors are returned as text, never raised; neither key nor prompt is
logged.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import httpx

PIN_HEADER = "x-emberline-pin"
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A prompt and its target. `key` is omitted from `repr`; `pin` selects a worker. `messages`: a
    conversation instead of `prompt`, for `chat`. `fields` and `headers` are added to the request.
    """

    url: str
    key: str = field(repr=False)
    model: str
    prompt: str = field(repr=False)
    chat: bool = False
    max_tokens: int = 64
    temperature: float = 0.0
    pin: str = ""
    deadline_s: float = 60.0
    messages: tuple[Mapping[str, str], ...] = field(default=(), repr=False)
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """The response. None for values not reported; `error` is "" on success."""

    text: str = ""
    error: str = ""
    code: str = ""
    status: int = 0
    worker: str = ""
    decision: str = ""
    request_id: str = ""
    ttft_s: float | None = None
    duration_s: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    itl_s: float | None = None  # mean inter-token latency; None below two tokens

    @property
    def ok(self) -> bool:
        return not self.error

    @property
    def missed(self) -> bool:
        """Return whether the engine reported less than half of the prompt as cached."""
        cached, prompt = self.cached_tokens, self.prompt_tokens
        return cached is not None and bool(prompt) and 2 * cached < (prompt or 0)


@lru_cache(maxsize=1)
def prompt_tls() -> ssl.SSLContext:
    """Cached: loading the CAs takes 20 ms of CPU time."""
    return httpx.create_ssl_context(trust_env=False)


def ask(request: PromptRequest) -> PromptAnswer:
    started = time.monotonic()
    timeout = httpx.Timeout(request.deadline_s, connect=min(3.0, request.deadline_s))
    answer = PromptAnswer()
    try:
        # Environment proxies must not see the key.
        with (
            httpx.Client(timeout=timeout, trust_env=False, verify=prompt_tls()) as client,
            client.stream(
                "POST", address_of(request), json=body_of(request), headers=headers_of(request)
            ) as response,
        ):
            answer = described(response)
            if response.status_code != 200:
                answer = with_error(answer, _head(response, started + request.deadline_s))
            else:
                answer = _read_stream(answer, response, started, request.deadline_s)
    except httpx.TimeoutException:
        text = f"No response within {request.deadline_s:.0f} s."
        answer = replace(answer, error=text, code="timeout")
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        text = f"The router is unreachable or closed the connection ({type(error).__name__})."
        answer = replace(answer, error=text, code="connection")
    return replace(answer, duration_s=time.monotonic() - started)


def probe(url: str, key: str, model: str, deadline_s: float = 15.0) -> str:
    """Request one token through the router. Return "" on success, else the reason."""
    if not key:
        return "The console's own key of this endpoint is missing."
    answer = ask(PromptRequest(url, key, model, "Hello", max_tokens=1, deadline_s=deadline_s))
    if not answer.ok:
        return f"A request through the router failed: {answer.error}"
    if answer.completion_tokens == 0:
        return "A request through the router returned no token."
    return ""


def address_of(request: PromptRequest) -> str:
    path = "/v1/chat/completions" if request.chat or request.messages else "/v1/completions"
    return request.url.rstrip("/") + path


def body_of(request: PromptRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        **request.fields,
    }
    if request.messages:
        body["messages"] = [dict(message) for message in request.messages]
    elif request.chat:
        body["messages"] = [{"role": "user", "content": request.prompt}]
    else:
        body["prompt"] = request.prompt
    return body


def headers_of(request: PromptRequest) -> dict[str, str]:
    headers = {**request.headers, "authorization": f"Bearer {request.key}"}
    if request.pin:
        headers[PIN_HEADER] = request.pin
    return headers


def described(response: httpx.Response) -> PromptAnswer:
    return PromptAnswer(
        status=response.status_code,
        worker=response.headers.get("x-emberline-worker", ""),
        decision=response.headers.get("x-emberline-decision", ""),
        request_id=response.headers.get("x-request-id", ""),
    )


def _head(response: httpx.Response, end: float) -> bytes:
    """Return the start of an error body, enough for its message."""
    head = b""
    for part in response.iter_bytes():
        head += part
        if len(head) > 8192 or time.monotonic() > end:
            break
    return head[:8192]


def with_error(answer: PromptAnswer, body: bytes) -> PromptAnswer:
    text, code = f"HTTP {answer.status}", "http"
    try:
        error = json.loads(body)["error"]
        text = f"{text}: {error['message']}"
        code = str(error.get("code") or code)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return replace(answer, error=text[:500], code=code)


def _read_stream(
    answer: PromptAnswer, response: httpx.Response, started: float, deadline_s: float
) -> PromptAnswer:
    reading = AnswerReader(answer, started, deadline_s)
    lines = EventLines()
    for part in response.iter_text():
        for line in lines.feed(part):
            reading.take(line)
            if reading.over:
                return reading.result()
    for line in lines.rest():
        reading.take(line)
    return reading.result()


class EventLines:
    """Iterate lines in bounded memory, with an empty line for each chunk that completes none, so
    that the caller can check its deadline.
    """

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, part: str) -> list[str]:
        *whole, self._rest = (self._rest + part).split("\n")
        if len(self._rest) > _LONGEST_LINE:
            raise httpx.RemoteProtocolError("an unterminated line")
        return whole or [""]

    def rest(self) -> list[str]:
        return [self._rest] if self._rest else []


class AnswerReader:
    """Parser of a completions stream: text and timings, independent of the transport.

    After `[DONE]` the response is read to its end: only then has the router accounted for it.
    """

    def __init__(self, answer: PromptAnswer, started: float, deadline_s: float) -> None:
        self.over = False  # stop reading
        self._done = False
        self._answer = answer
        self._started = started
        self._deadline_s = deadline_s
        self._texts: list[str] = []
        self._first: float | None = None
        self._last = 0.0
        self._error = ("The stream ended early.", "stream")

    def take(self, line: str) -> str:
        now = time.monotonic()
        data = line[5:].strip() if line.startswith("data:") else "{}"
        if self._done:
            self.over = now - self._started > self._deadline_s
            return ""
        if data == "[DONE]":
            self._done = True
            self._error = ("", "")
            return ""
        if now - self._started > self._deadline_s:
            return self._end(f"Not completed within {self._deadline_s:.0f} s.", "timeout")
        event = _json(data)
        if "error" in event:
            message = event["error"].get("message") if isinstance(event["error"], dict) else ""
            return self._end(f"The stream ended with an error: {message or 'unknown'}", "stream")
        piece = piece_of(event)
        if piece is not None:
            self._first = now if self._first is None else self._first
            self._last = now if piece else self._last
        self._texts.append(piece or "")
        self._answer = counted(self._answer, event.get("usage"))
        return piece or ""

    def _end(self, error: str, code: str) -> str:
        self.over = True
        self._error = (error, code)
        return ""

    def result(self) -> PromptAnswer:
        error, code = self._error
        if not error and self._first is None:
            error, code = "The stream ended early.", "stream"
        ttft = None if self._first is None else self._first - self._started
        return replace(
            self._answer,
            text="".join(self._texts),
            ttft_s=ttft,
            itl_s=self._between(),
            error=error,
            code=code,
        )

    def _between(self) -> float | None:
        tokens = self._answer.completion_tokens or sum(1 for text in self._texts if text)
        if self._first is None or tokens < 2 or self._last <= self._first:
            return None
        return (self._last - self._first) / (tokens - 1)


def _json(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def piece_of(event: dict[str, Any]) -> str | None:
    """Return the text of one event; None without a choice, as in the final usage event."""
    choices = event.get("choices")
    if not choices or not isinstance(choices[0], dict):
        return None
    choice = choices[0]
    if "text" in choice:
        return str(choice["text"] or "")
    content = (choice.get("delta") or {}).get("content")
    # A chat stream starts with an event of the role only, which is not the first token.
    return str(content) if content else ("" if choice.get("finish_reason") else None)


def counted(answer: PromptAnswer, usage: Any) -> PromptAnswer:
    if not isinstance(usage, dict):
        return answer
    details = usage.get("prompt_tokens_details") or {}
    return replace(
        answer,
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        cached_tokens=details.get("cached_tokens"),
    )
