"""Pages about routing: which router serves what, its recent decisions, and why one was made."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from console.web import htmx
from endpoints import selectors as endpoint_selectors
from endpoints.models import Endpoint
from endpoints.refusals import NotFoundError
from routing import choices, selectors

SHOWN = 50
LONGEST_PROMPT = 100_000


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    rows = [
        {
            "endpoint": endpoint,
            "strategy": endpoint.parsed.routing.effective_strategy,
            "meaning": choices.STRATEGIES.get(endpoint.parsed.routing.effective_strategy, ""),
        }
        for endpoint in endpoint_selectors.endpoints()
    ]
    return render(request, "routing/index.html", {"rows": rows})


@require_safe
def endpoint(request: HttpRequest, name: str) -> HttpResponse:
    """Workers as the router sees them, and its newest decisions; htmx asks for the part again."""
    found = _endpoint(name)
    workers = selectors.workers(found)
    decided = selectors.decisions(found, SHOWN) if not workers.error else None
    strategy = found.parsed.routing.effective_strategy
    context: dict[str, Any] = {
        "endpoint": found,
        "strategy": strategy,
        "meaning": choices.STRATEGIES.get(strategy, ""),
        "workers": workers.found,
        "decisions": decided.found if decided else [],
        "error": workers.error or (decided.error if decided else ""),
        "reasons": _reasons(decided.found if decided else []),
    }
    return htmx.render(request, "routing/endpoint.html", "routing/htmx/decisions.html", context)


@require_safe
def decision(request: HttpRequest, name: str, number: str) -> HttpResponse:
    found = _endpoint(name)
    asked = selectors.decision(found, number)
    context = {
        "endpoint": found,
        "number": number,
        "decision": asked.found,
        "error": asked.error,
    }
    return render(request, "routing/decision.html", context)


@require_POST
def explain(request: HttpRequest, name: str) -> HttpResponse:
    """Where a prompt would go now. It reaches no worker, so every role may ask."""
    found = _endpoint(name)
    prompt = request.POST.get("prompt", "")[:LONGEST_PROMPT]
    context: dict[str, Any] = {"endpoint": found, "prompt": prompt}
    if not prompt.strip():
        context["error"] = "Type a prompt first."
    else:
        asked = selectors.explain(found, prompt)
        context |= {"decision": asked.found, "error": asked.error}
    return htmx.render(request, "routing/explained.html", "routing/htmx/explained.html", context)


def _endpoint(name: str) -> Endpoint:
    try:
        return endpoint_selectors.get(name)
    except NotFoundError as error:
        raise Http404 from error


def _reasons(decided: list[selectors.Decision]) -> list[dict[str, Any]]:
    """How often each reason is among the shown decisions, the most frequent first."""
    counts: dict[str, int] = {}
    for one in decided:
        counts[one.reason] = counts.get(one.reason, 0) + 1
    return [
        {
            "label": choices.label(reason),
            "sentence": choices.sentence(reason),
            "count": count,
            "percent": round(100 * count / len(decided)),
        }
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
