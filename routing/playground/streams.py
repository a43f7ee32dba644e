"""One answer as server-sent events, to the page which asked for it.

`head` names worker and decision, each `piece` brings text, `done` brings the facts as JSON with
the same as HTML. Promises that a page which goes away stops the worker, and that the key is in no
event. How many there are at once, and how long, is the business of console.web.server.sse.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from django.template.loader import render_to_string

from console.web.server.sse import Event, Source
from endpoints.models import Endpoint
from endpoints.prompt.client import Answer, Ask
from endpoints.prompt.stream import stream
from routing.playground import answers
from routing.prompts.conversation import Conversation


async def events(endpoint: Endpoint, ask: Ask, said: Conversation) -> Source:
    answer = Answer()
    async with aclosing(stream(ask)) as pieces:
        async for one in pieces:
            if isinstance(one, str):
                yield Event({"text": one}, "piece")
                continue
            answer = one
            if not one.duration_s:
                yield Event({"worker": one.worker, "decision": one.decision}, "head")
    # The router is asked for its record, which may take as long as its deadline.
    yield Event(await asyncio.to_thread(_told, endpoint, answer, said), "done")


def _told(endpoint: Endpoint, answer: Answer, said: Conversation) -> dict[str, Any]:
    found = answers.facts(endpoint, answer, said)
    shown = {"answer": found, "endpoint": endpoint}
    return {**found, "html": render_to_string("playground/inc/facts.html", shown)}
