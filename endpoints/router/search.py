"""Search finder of routing decisions by decision or request ID."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.urls import reverse

from console.web.shell.search import Hit
from endpoints import selectors as endpoints
from endpoints.router import selectors
from routing.client import admin_client

# As routers write them: `3fa9c1d0-d1b` for a decision, `3fa9c1d0-1b` for a request without an ID;
# of callers' own request IDs UUIDs, with dashes or without.
_DECISION = re.compile(r"[0-9a-f]{8}-d[0-9a-f]+")
_REQUEST = re.compile(
    r"[0-9a-f]{8}-([0-9a-f]{1,8}|[0-9a-f]{4}(-[0-9a-f]{4}){2}-[0-9a-f]{12})|[0-9a-f]{32}"
)
DEADLINE_S = 0.5
BUDGET_S = 2.0  # for all routers of a search, several at a time
_MAX_NAMED = 3
NEWEST = 200  # decisions per router that are searched for a request ID


def find(viewer: Any, text: str) -> Sequence[Hit]:
    """Query the routers of the visible endpoints; only text that can be an ID. A last hit names
    the endpoints whose routers did not respond.
    """
    by_id = _DECISION.fullmatch(text) is not None
    if not by_id and not _REQUEST.fullmatch(text):
        return []
    owner = {
        url: endpoint.name
        for endpoint in endpoints.endpoints(viewer)
        for url in selectors.routers(endpoint)
        if url
    }

    def query(url: str) -> list[dict[str, Any]]:
        if by_id:
            decision = admin_client.decision(url, text, DEADLINE_S)
            return [decision] if decision else []
        newest = admin_client.decisions(url, NEWEST, DEADLINE_S, brief=True)
        return [decision for decision in newest if decision.get("request_id") == text]

    replies = admin_client.query_routers(list(owner), query, BUDGET_S)
    hits = [
        Hit("decision", number, _page(owner[reply.url], number), "route", owner[reply.url])
        for reply in replies
        for number in (str(decision.get("id", "")) for decision in reply.answer or ())
        if number
    ]
    silent = sorted({owner[reply.url] for reply in replies if reply.error})
    return [*hits, _describe_silent(silent)] if silent else hits


def _describe_silent(names: Sequence[str]) -> Hit:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    text = f"Not searched, router not responding: {', '.join(names[:_MAX_NAMED])}{more}"
    return Hit("decision", text, reverse("routing:index"), "alert-triangle")


def _page(endpoint: str, number: str) -> str:
    return reverse("routing:decision", args=[endpoint, number])
