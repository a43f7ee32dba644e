"""Server-sent events with new and changed routing decisions.

One router request per poll, and a bounded record of sent rows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from django.template.loader import render_to_string

from console.web.server.sse import ServerSentEvent
from endpoints import selectors as endpoint_selectors
from endpoints.refusals import NotFoundError
from endpoints.router import selectors
from routing.analysis.choices import DecisionFilter, RoutingDecision

RenderDecisions = Callable[[str, list[RoutingDecision]], dict[str, Any]]


class DecisionStream:
    """One reader of an endpoint's decisions.

    `poll` is called about once a second and sends at most the newest `limit` decisions. `render`
    renders decisions as event data.
    """

    def __init__(
        self, name: str, wanted: DecisionFilter, limit: int, render: RenderDecisions | None = None
    ) -> None:
        self._name = name
        self._wanted = wanted
        self._limit = limit
        self._render = render or render_rows
        self._sent_stamps: dict[str, tuple[Any, ...]] = {}  # decision id -> stamp
        self._event = ServerSentEvent()
        self._count = 0
        self._silent = False  # the routers do not respond, and the reader was notified
        self._mark = secrets.token_hex(4)  # makes event ids unique per connection

    def poll(self) -> ServerSentEvent | None:
        """Return the event, the previous one if unchanged, None if the endpoint is gone."""
        try:
            endpoint = endpoint_selectors.get(self._name)
        except NotFoundError:
            return None
        reply = selectors.decisions(endpoint, self._limit, brief=self._render is render_rows)
        if reply.error:
            self._silent = True
            return self._next({"error": reply.error})
        decisions = {
            decision.id: decision for decision in reply.found if self._wanted.takes(decision)
        }
        news = [
            decision
            for decision in decisions.values()
            if self._sent_stamps.get(decision.id) != _stamp(decision)
        ]
        self._sent_stamps = {number: _stamp(decision) for number, decision in decisions.items()}
        if not news and not self._silent:
            return self._event
        self._silent = False
        return self._next(self._render(self._name, news))

    def _next(self, data: dict[str, Any]) -> ServerSentEvent:
        if data != self._event.data:
            self._count += 1
            self._event = ServerSentEvent(data, "status", f"{self._mark}-{self._count}")
        return self._event


def render_rows(name: str, news: list[RoutingDecision]) -> dict[str, Any]:
    rows = selectors.name_keys(news)
    return {"rows": [{"id": decision.id, "html": _row(name, decision)} for decision in rows]}


def render_records(_name: str, news: list[RoutingDecision]) -> dict[str, Any]:
    """Render decisions for programs, as in GET responses."""
    return {"decisions": [decision.raw for decision in news]}


def _stamp(decision: RoutingDecision) -> tuple[Any, ...]:
    """Return a value that changes with the row."""
    tokens = decision.cached_tokens, decision.completion_tokens
    return decision.status, decision.reason, decision.ttft_s, decision.duration_s, tokens


def _row(name: str, decision: RoutingDecision) -> str:
    context = {"decision": decision, "endpoint": {"name": name}}
    return render_to_string("routing/inc/decision_row.html", context)
