"""Streaming client of an endpoint's router, for an event loop (see `client`).

Closing the generator closes the connection, which aborts the request on the worker.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

import httpx

from endpoints.prompt.client import (
    AnswerReader,
    EventLines,
    PromptAnswer,
    PromptRequest,
    address_of,
    body_of,
    described,
    headers_of,
    prompt_tls,
    with_error,
)

_ERROR_BYTES = 8192


async def stream(request: PromptRequest) -> AsyncGenerator[str | PromptAnswer]:
    """Yield a PromptAnswer with worker and routing decision (unless rejected), then pieces of text,
    finally the complete PromptAnswer.
    """
    started = time.monotonic()
    answer = PromptAnswer()
    reading: AnswerReader | None = None
    try:
        timeout = httpx.Timeout(request.deadline_s, connect=min(3.0, request.deadline_s))
        async with (
            # Environment proxies must not see the key.
            httpx.AsyncClient(timeout=timeout, trust_env=False, verify=prompt_tls()) as client,
            client.stream(
                "POST", address_of(request), json=body_of(request), headers=headers_of(request)
            ) as response,
        ):
            answer = described(response)
            if response.status_code != 200:
                answer = with_error(answer, await _head(response))
            else:
                yield answer
                reading = AnswerReader(answer, started, request.deadline_s)
                async for piece in _pieces(response, reading):
                    yield piece
                answer = reading.result()
    except httpx.TimeoutException:
        answer = reading.result() if reading else answer
        text = f"Not completed within {request.deadline_s:.0f} s."
        answer = replace(answer, error=text, code="timeout")
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        answer = reading.result() if reading else answer
        text = f"The router is unreachable or closed the connection ({type(error).__name__})."
        answer = replace(answer, error=text, code="connection")
    yield replace(answer, duration_s=time.monotonic() - started)


async def _pieces(response: httpx.Response, reading: AnswerReader) -> AsyncIterator[str]:
    lines = EventLines()
    async for part in response.aiter_text():
        for line in lines.feed(part):
            piece = reading.take(line)
            if piece:
                yield piece
            if reading.over:
                return
    for line in lines.rest():
        reading.take(line)


async def _head(response: httpx.Response) -> bytes:
    head = b""
    async for part in response.aiter_bytes():
        head += part
        if len(head) > _ERROR_BYTES:
            break
    return head[:_ERROR_BYTES]
