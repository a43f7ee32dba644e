"""The audit page: filtered events with values before and after."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from console.audit import selectors, targets
from console.audit.models import AuditEvent
from console.web import responses

PAGE = 50


@dataclass(frozen=True, slots=True)
class AuditChange:
    field: str
    before: str
    after: str


@require_safe
def events(request: HttpRequest) -> HttpResponse:
    filters = {name: request.GET.get(name, "").strip() for name in ("actor", "verb", "target")}
    page = Paginator(selectors.list_events(**filters, viewer=request.user), PAGE).get_page(
        request.GET.get("page")
    )
    states = targets.describe([event.target for event in page], request.user)
    context = {
        "page": page,
        "rows": [(event, list_changes(event), states[event.target]) for event in page],
        "wanted": filters,
        "filtered": any(filters.values()),
        "verbs": selectors.list_verbs(request.user),
        "actors": selectors.list_actors(request.user),
    }
    return responses.render(request, "console/audit.html", "console/htmx/audit_rows.html", context)


def list_changes(event: AuditEvent) -> list[AuditChange]:
    """Return the stored changes as rows; accepts both stored formats."""
    stored = event.changes if isinstance(event.changes, dict) else {"": event.changes}
    if set(stored) == {"before", "after"}:
        stored = {"": [stored["before"], stored["after"]]}
    return [AuditChange(field, *_pair(value)) for field, value in stored.items()]


def _pair(value: Any) -> tuple[str, str]:
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        value = [value["before"], value["after"]]
    if isinstance(value, list) and len(value) == 2:
        return _text(value[0]), _text(value[1])
    return "", _text(value)


def _text(value: Any) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
