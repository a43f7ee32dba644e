"""Playground requests through the endpoint's router, and facts about their responses.

The console's key is sent to the router only. Cached tokens by tier are measured at the worker, or
split as the router expected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.template.loader import render_to_string
from django.urls import reverse

from console.core.errors import Problem, Refused
from console.processkit.metrics import MetricSample
from console.web.server.sse import ServerSentEvent, Source
from endpoints import selectors as endpoint_selectors
from endpoints.models import Endpoint
from endpoints.prompt import client, token_sources
from endpoints.prompt.client import PromptAnswer, PromptRequest
from endpoints.prompt.stream import stream
from endpoints.router import selectors
from routing.analysis.choices import RoutingDecision
from routing.analysis.misses import explain_miss
from routing.client import admin_client
from routing.prompts.conversation import Conversation

DEADLINE_S = 300.0
BEFORE_S = 0.5
COUNTERS_WAIT_S = 1.0  # counters are updated within one engine step after the response
POLL_S = 0.1
MAX_WORKERS = 8  # larger endpoints are not scraped for each message
DEVICE, L1, L2 = "gpu", "l1", "l2"


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Prompt tokens by source. `cache`: from an unknown tier. None: not reported by the engine.
    `measured`: the tiers are the worker's own counts of this request.
    """

    prompt: int | None = None
    device: int = 0
    l1: int = 0
    l2: int = 0
    cache: int = 0
    computed: int | None = None
    measured: bool = False


class WorkerCounters:
    """The workers' counters before a request, compared afterwards with those of its worker. The
    request waits for `read`, at most `BEFORE_S`.
    """

    def __init__(self, urls: Mapping[str, str]) -> None:
        self._urls = urls
        self._before: dict[str, list[MetricSample]] = {}

    @classmethod
    def of(cls, endpoint: Endpoint) -> WorkerCounters:
        workers = endpoint_selectors.worker_facts(endpoint)
        return cls({worker.name: worker.url for worker in workers if worker.ready and worker.url})

    def read(self) -> None:
        if len(self._urls) <= MAX_WORKERS:
            self._before = token_sources.scrape_all(self._urls, BEFORE_S)

    def tiers_of(self, answer: PromptAnswer) -> Mapping[str, int]:
        """Return the cached tokens by tier; empty if they are not those of this request alone."""
        before, cached = self._before.get(answer.worker), answer.cached_tokens
        if before is None or not cached:
            return {}
        deadline = time.monotonic() + COUNTERS_WAIT_S
        while True:
            after = token_sources.scrape(self._urls[answer.worker])
            growth = token_sources.growth_by_tier(before, after) if after else None
            if growth is None:
                return {}
            if sum(growth.values()) >= cached:
                return growth if sum(growth.values()) == cached else {}
            if time.monotonic() >= deadline:
                return {}
            time.sleep(POLL_S)


def prepare(endpoint: Endpoint, conversation: Conversation) -> PromptRequest:
    """Build the request; raise `Refused` if invalid."""
    if not endpoint.status.url:
        text = "The endpoint has no URL yet."
        remedy = "Wait until its router is running."
        problem = Problem("endpoint", endpoint.name, text, remedy, "no_address")
        raise Refused(problem, status_code=409)
    headers, fields = selectors.require_session_name(endpoint, conversation.session)
    chat = conversation.api == "chat"
    ask = PromptRequest(
        url=endpoint_selectors.ask_url(endpoint),
        key=endpoint_selectors.console_key(endpoint),
        model=endpoint.name,
        prompt="" if chat else conversation.prompt,
        chat=chat,
        pin=conversation.worker,
        deadline_s=DEADLINE_S,
        messages=conversation.messages if chat else (),
        fields={**conversation.fields, **fields},
        headers=headers,
    )
    if (
        conversation.route
        and conversation.route != endpoint.parsed.routing.effective_strategy
        and not conversation.worker
    ):
        ask = replace(ask, pin=_choose_by_strategy(endpoint, ask, conversation.route))
    return ask


def _choose_by_strategy(endpoint: Endpoint, ask: PromptRequest, strategy: str) -> str:
    """Return the worker this strategy would choose now, by the dry run of a router."""
    body = dict(ask.fields)
    body |= {"messages": list(ask.messages)} if ask.chat else {"prompt": ask.prompt}
    replies = selectors.explain(endpoint, body, strategy, ask.headers)
    choice = next((reply.answer for reply in replies if reply.answer is not None), None)
    if choice is None:
        silence = admin_client.describe_missing(replies)
        remedy = "Choose the router's own strategy, or switch it on the Strategy tab."
        raise Refused(Problem("route", strategy, silence, remedy, "refused"))
    return choice.chosen


def count_tokens(
    answer: PromptAnswer, decision: RoutingDecision | None, tiers: Mapping[str, int]
) -> TokenCounts:
    """Split the reported tokens by the measured `tiers`, or else in the expected proportions."""
    prompt, cached = answer.prompt_tokens, answer.cached_tokens
    if prompt is None or cached is None:
        return TokenCounts(prompt)
    cached = max(0, min(cached, prompt))
    computed = prompt - cached
    if tiers:
        device, l1, l2 = (tiers.get(tier, 0) for tier in ("device", "L1", "L2"))
        return TokenCounts(prompt, device, l1, l2, 0, computed, measured=True)
    chosen = next((c for c in decision.candidates if c.chosen), None) if decision else None
    matched = chosen.matched if chosen is not None else {}
    left, parts = cached, {}
    for tier in (DEVICE, L1, L2):
        parts[tier] = min(left, matched.get(tier, 0))
        left -= parts[tier]
    if parts[DEVICE] + parts[L1] + parts[L2] == 0:
        return TokenCounts(prompt, cache=cached, computed=computed)
    return TokenCounts(prompt, parts[DEVICE], parts[L1], parts[L2], left, computed)


def _explain_miss(answer: PromptAnswer, decision: RoutingDecision | None) -> str:
    """Use the response's counts: the router's record may not have them yet."""
    if decision is None:
        return ""
    prompt, cached = answer.prompt_tokens, answer.cached_tokens
    return explain_miss(replace(decision, prompt_tokens=prompt, cached_tokens=cached))


def facts(
    endpoint: Endpoint, answer: PromptAnswer, conversation: Conversation, counters: WorkerCounters
) -> dict[str, Any]:
    """Return the response's facts without its text, ready for JSON."""
    decision, url = None, ""
    if answer.decision:
        decision = selectors.decision(endpoint, answer.decision).found
        url = reverse("routing:decision", args=[endpoint.name, answer.decision])
    return {
        "endpoint": endpoint.name,
        "error": answer.error,
        "code": answer.code,
        "status": answer.status,
        "worker": answer.worker,
        "decision": answer.decision,
        "explain_url": url,
        "miss": _explain_miss(answer, decision) if not conversation.salt else "",
        "request_id": answer.request_id,
        "reason": decision.reason if decision else "",
        "reason_label": decision.label if decision else "",
        "reason_sentence": decision.sentence if decision else "",
        "route": conversation.route,
        "cold": bool(conversation.salt),
        "ttft_s": answer.ttft_s,
        "itl_s": answer.itl_s,
        "duration_s": answer.duration_s,
        "completion_tokens": answer.completion_tokens,
        "expected_cached_tokens": decision.predicted_cached_tokens if decision else None,
        "tokens": asdict(count_tokens(answer, decision, counters.tiers_of(answer))),
    }


def respond(endpoint: Endpoint, conversation: Conversation) -> tuple[PromptAnswer, dict[str, Any]]:
    """Send the conversation and return the whole response with its facts; raise `Refused`."""
    request = prepare(endpoint, conversation)
    counters = WorkerCounters.of(endpoint)
    counters.read()
    answer = client.ask(request)
    return answer, facts(endpoint, answer, conversation, counters)


async def events(
    endpoint: Endpoint, ask: PromptRequest, conversation: Conversation, counters: WorkerCounters
) -> Source:
    answer = PromptAnswer()
    await asyncio.to_thread(counters.read)
    async with aclosing(stream(ask)) as pieces:
        async for piece in pieces:
            if isinstance(piece, str):
                yield ServerSentEvent({"text": piece}, "piece")
                continue
            answer = piece
            if not piece.duration_s:
                yield ServerSentEvent({"worker": piece.worker, "decision": piece.decision}, "head")
    # Fetching the router's record may take up to its deadline.
    data = await asyncio.to_thread(_render_facts, endpoint, answer, conversation, counters)
    yield ServerSentEvent(data, "done")


def _render_facts(
    endpoint: Endpoint, answer: PromptAnswer, conversation: Conversation, counters: WorkerCounters
) -> dict[str, Any]:
    details = facts(endpoint, answer, conversation, counters)
    context = {"answer": details, "endpoint": endpoint}
    return {
        **details,
        "html": render_to_string("playground/inc/facts.html", context),
        "row": render_to_string("playground/inc/run.html", context),
    }
