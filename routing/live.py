"""What a page which watches decisions is told: rows that are new or have changed, as HTML.

Promises one question to the routers for each look, and a bounded memory of what was told.
"""

from __future__ import annotations

import secrets
from typing import Any

from django.template.loader import render_to_string

from console.web.sse import Event
from endpoints import selectors as endpoint_selectors
from endpoints.refusals import NotFoundError
from routing import selectors
from routing.filters import Filter
from routing.selectors import Decision


class Watching:
    """One reader of one endpoint's decisions. `look` is called about once a second; of more than
    `limit` requests in that time it tells the newest."""

    def __init__(self, name: str, wanted: Filter, limit: int) -> None:
        self._name = name
        self._wanted = wanted
        self._limit = limit
        self._told: dict[str, str] = {}  # decision id: its stamp
        self._event = Event()
        self._count = 0
        self._mark = secrets.token_hex(4)  # ids of one connection are no other's

    def look(self) -> Event | None:
        """The same event as before where there is no news; None once the endpoint is gone."""
        try:
            endpoint = endpoint_selectors.get(self._name)
        except NotFoundError:
            return None
        asked = selectors.decisions(endpoint, self._limit)
        if asked.error:
            return self._next({"error": asked.error})
        seen = {one.id: one for one in asked.found if self._wanted.takes(one)}
        news = [one for one in seen.values() if self._told.get(one.id) != _stamp(one)]
        self._told = {number: _stamp(one) for number, one in seen.items()}
        return self._next({"rows": [{"id": one.id, "html": _row(self._name, one)} for one in news]})

    def _next(self, data: dict[str, Any]) -> Event:
        quiet = data == {"rows": []} and "error" not in (self._event.data or {})
        if not quiet and data != self._event.data:
            self._count += 1
            self._event = Event(data, "decisions", f"{self._mark}-{self._count}")
        return self._event


def _stamp(decision: Decision) -> str:
    """Changes when its row does."""
    return f"{decision.status} {decision.ttft_s} {decision.cached_tokens} {decision.reason}"


def _row(name: str, decision: Decision) -> str:
    shown = {"decision": decision, "endpoint": {"name": name}}
    return render_to_string("routing/inc/decision_row.html", shown)
