"""The console as a caller: one prompt through an endpoint's router, with the console's own key.

Promises a deadline on everything, an answer or a sentence saying why there is none (never an
exception), and that neither the key nor the prompt reaches a log. Must not know Django.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

PIN_HEADER = "x-emberline-pin"
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class Ask:
    """What to send, where. `key` stays out of `repr`; `pin` asks for one worker."""

    url: str
    key: str = field(repr=False)
    model: str
    prompt: str = field(repr=False)
    chat: bool = False
    max_tokens: int = 64
    temperature: float = 0.0
    pin: str = ""
    deadline_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. None where the server did not say; `error` is "" when all went well."""

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

    @property
    def ok(self) -> bool:
        return not self.error


def ask(request: Ask) -> Answer:
    """Send it, read the stream to its end, measure."""
    started = time.monotonic()
    timeout = httpx.Timeout(request.deadline_s, connect=min(3.0, request.deadline_s))
    answer = Answer()
    try:
        # No proxy of the environment may see the key.
        with (
            httpx.Client(timeout=timeout, trust_env=False) as client,
            client.stream(
                "POST", _address(request), json=_body(request), headers=_headers(request)
            ) as response,
        ):
            answer = _described(response)
            if response.status_code != 200:
                answer = _refused(answer, _head(response, started + request.deadline_s))
            else:
                answer = _streamed(answer, response, started, request.deadline_s)
    except httpx.TimeoutException:
        text = f"No answer within {request.deadline_s:.0f} s."
        answer = replace(answer, error=text, code="timeout")
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        text = f"The router could not be reached or broke off ({type(error).__name__})."
        answer = replace(answer, error=text, code="connection")
    return replace(answer, duration_s=time.monotonic() - started)


def prove(url: str, key: str, model: str, deadline_s: float = 15.0) -> str:
    """One real token through the router: "" when it came, else why not."""
    if not key:
        return "The console's own key of this endpoint is missing."
    answer = ask(Ask(url, key, model, "Hello", max_tokens=1, deadline_s=deadline_s))
    if not answer.ok:
        return f"A request through the router failed: {answer.error}"
    if answer.completion_tokens == 0:
        return "A request through the router was answered without a token."
    return ""


def _address(request: Ask) -> str:
    path = "/v1/chat/completions" if request.chat else "/v1/completions"
    return request.url.rstrip("/") + path


def _body(request: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.chat:
        body["messages"] = [{"role": "user", "content": request.prompt}]
    else:
        body["prompt"] = request.prompt
    return body


def _headers(request: Ask) -> dict[str, str]:
    headers = {"authorization": f"Bearer {request.key}"}
    if request.pin:
        headers[PIN_HEADER] = request.pin
    return headers


def _described(response: httpx.Response) -> Answer:
    return Answer(
        status=response.status_code,
        worker=response.headers.get("x-emberline-worker", ""),
        decision=response.headers.get("x-emberline-decision", ""),
        request_id=response.headers.get("x-request-id", ""),
    )


def _head(response: httpx.Response, end: float) -> bytes:
    """The start of an error's body: enough for its message."""
    found = b""
    for part in response.iter_bytes():
        found += part
        if len(found) > 8192 or time.monotonic() > end:
            break
    return found[:8192]


def _refused(answer: Answer, body: bytes) -> Answer:
    text, code = f"HTTP {answer.status}", "http"
    try:
        error = json.loads(body)["error"]
        text = f"{text}: {error['message']}"
        code = str(error.get("code") or code)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return replace(answer, error=text[:500], code=code)


def _streamed(
    answer: Answer, response: httpx.Response, started: float, deadline_s: float
) -> Answer:
    texts: list[str] = []
    ttft: float | None = None
    ended = late = False
    for event in _events(response):
        ended, late = event is None, time.monotonic() - started > deadline_s
        if event is None or late:
            break
        if "error" in event:
            message = event["error"].get("message") if isinstance(event["error"], dict) else ""
            text = f"The stream ended with an error: {message or 'unknown'}"
            return replace(answer, text="".join(texts), ttft_s=ttft, error=text, code="stream")
        piece = _piece(event)
        if piece is not None and ttft is None:
            ttft = time.monotonic() - started
        texts.append(piece or "")
        answer = _counted(answer, event.get("usage"))
    answer = replace(answer, text="".join(texts), ttft_s=ttft)
    if late and not ended:
        return replace(answer, error=f"Not finished within {deadline_s:.0f} s.", code="timeout")
    if not ended or ttft is None:
        return replace(answer, error="The stream broke off before its end.", code="stream")
    return answer


def _events(response: httpx.Response) -> Iterator[dict[str, Any] | None]:
    """The stream's JSON objects; None is its proper end. What comes without being an event (a
    comment that keeps the line alive) is an empty one: its reader looks at the clock with each."""
    for line in _lines(response):
        data = line[5:].strip() if line.startswith("data:") else "{}"
        if data == "[DONE]":
            yield None
            return
        try:
            event = json.loads(data)
        except ValueError:
            event = {}
        yield event if isinstance(event, dict) else {}


def _lines(response: httpx.Response) -> Iterator[str]:
    """As `iter_lines`, with an empty one for each part that ends none, in bounded memory."""
    rest = ""
    for part in response.iter_text():
        *whole, rest = (rest + part).split("\n")
        if len(rest) > _LONGEST_LINE:
            raise httpx.RemoteProtocolError("a line without an end")
        yield from whole or ("",)
    if rest:
        yield rest


def _piece(event: dict[str, Any]) -> str | None:
    """The text of one event; None when it carries no choice (such as the usage at the end)."""
    choices = event.get("choices")
    if not choices or not isinstance(choices[0], dict):
        return None
    choice = choices[0]
    if "text" in choice:
        return str(choice["text"] or "")
    content = (choice.get("delta") or {}).get("content")
    # A chat stream begins with an event that only names the role: that is not the first token.
    return str(content) if content else ("" if choice.get("finish_reason") else None)


def _counted(answer: Answer, usage: Any) -> Answer:
    if not isinstance(usage, dict):
        return answer
    details = usage.get("prompt_tokens_details") or {}
    return replace(
        answer,
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        cached_tokens=details.get("cached_tokens"),
    )
