"""Requests of every kind by several keys, and the tokens counted by routers and engines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.vllm.router_process import Router, Seat, text
from tests.support.waiting import until

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
_PROMPT, _COMPLETION = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
_WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def chat(**more: Any) -> tuple[str, dict[str, Any]]:
    return CHAT, {"messages": [{"role": "user", "content": text(40)}], "max_tokens": 12, **more}


def complete(prompt: Any = None, **more: Any) -> tuple[str, dict[str, Any]]:
    return COMPLETE, {"prompt": prompt or text(40), "max_tokens": 9, **more}


def every_kind() -> list[tuple[str, dict[str, Any]]]:
    """Requests which are answered to their end."""
    message = {"role": "user", "content": text(30)}
    several = [text(20), text(25), text(30)]
    return [
        chat(),
        chat(stream=True),
        chat(stream="true"),
        chat(stream=True, stream_options={"continuous_usage_stats": True}),
        chat(**_WITH_USAGE),
        chat(n=3, temperature=1),
        chat(n=3, temperature=1, stream=True),
        chat(stream=True, stop=["e"], max_tokens=30),
        chat(stream=True, logprobs=True, top_logprobs=5),
        chat(prompt_logprobs=5, return_token_ids=True),
        complete(),
        complete(stream=True),
        complete(several),
        complete(several, stream=True),
        complete(several, stream=True, n=2, temperature=1),
        complete([5, 6, 7, 8] * 10, stream=True, echo=True),
        ("/v1/responses", {"input": text(30), "max_output_tokens": 8}),
        ("/v1/responses", {"input": text(30), "max_output_tokens": 8, "stream": True}),
        ("/v1/messages", {"messages": [message], "max_tokens": 8}),
        ("/v1/messages", {"messages": [message], "max_tokens": 8, "stream": True}),
        ("/invocations", {**chat(stream=True)[1]}),
    ]


@dataclass
class Counted:
    """Since it was made: what engines counted, and what the router counted of each key."""

    router: Router

    def __post_init__(self) -> None:
        self._before = self._engines()
        self._use = self.router.ask("/usage")["keys"]

    def _engines(self) -> tuple[float, float]:
        workers = [seat.worker for seat in self.router.seats]
        return (
            sum(worker.metric(_PROMPT) for worker in workers),
            sum(worker.metric(_COMPLETION) for worker in workers),
        )

    def engines(self) -> tuple[int, int]:
        now = self._engines()
        return int(now[0] - self._before[0]), int(now[1] - self._before[1])

    def keys(self) -> dict[str, dict[str, int]]:
        found = {}
        for key, counts in self.router.ask("/usage")["keys"].items():
            before = self._use.get(key, {})
            found[key] = {name: counts[name] - before.get(name, 0) for name in counts}
        return found

    def sums(self, *names: str) -> tuple[int, ...]:
        return tuple(sum(key[name] for key in self.keys().values()) for name in names)

    def wait_ended(self, requests: int) -> None:
        until(lambda: self.sums("requests") == (requests,), what=f"{requests} requests ended")


def send(router: Router, path: str, body: dict[str, Any], key: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.post(
        f"http://127.0.0.1:{router.port}{path}",
        json={"model": "m", "temperature": 0, **body},
        headers=headers,
        timeout=120,
    )


def hang_up(router: Router, path: str, body: dict[str, Any], events: int, key: str = "") -> None:
    """Read so many events, then close the connection."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = f"http://127.0.0.1:{router.port}{path}"
    body = {"model": "m", "temperature": 0, **body}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=120) as answer:
        seen = 0
        for line in answer.iter_lines():
            seen += line.startswith("data: ")
            if seen >= events:
                break


def stream_of(url: str, path: str, body: dict[str, Any]) -> bytes:
    """A stream's bytes without what differs from answer to answer."""
    headers = {"x-request-id": "same"}
    answer = httpx.post(f"{url}{path}", json={"model": "m", **body}, headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text
    found = re.sub(rb'"created":\d+', b'"created":0', answer.content)
    return re.sub(rb'"id":"[\w-]+"', b'"id":""', found)


def joined(stream: bytes) -> dict[str, Any]:
    """Return a stream's choices, each with the parts of its events put together, and the rest."""
    *events, after = stream.split(b"\n\n")
    assert after == b"", "an event without its end"
    choices: dict[int, Any] = {}
    rest: set[bytes | str] = set()
    for event in events:
        data = event.removeprefix(b"data: ")
        if data == b"[DONE]":
            rest.add(data)
            continue
        document = json.loads(data)
        for choice in document.pop("choices"):
            index = choice.pop("index")
            choices[index] = _put_together(choices.get(index), choice)
        rest.add(json.dumps(document))
    assert events[-1] == b"data: [DONE]"
    return {"choices": choices, "rest": rest}


def _put_together(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, dict):
        return {
            key: _put_together(first.get(key), second.get(key)) for key in sorted({*first, *second})
        }
    return first + second


def idle(seats: Sequence[Seat]) -> None:
    """Wait until no engine has anything to do."""
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    until(lambda: not any(seat.worker.metric(name) for seat in seats for name in names))
