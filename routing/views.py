"""Pages about routing: which router serves what, its recent decisions, and why one was made."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console.web import htmx
from endpoints import selectors as endpoint_selectors
from endpoints.models import Endpoint
from endpoints.refusals import NotFoundError
from routing import choices, kv_page, selectors
from routing.doctor.checks import CHECKS

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
        for endpoint in endpoint_selectors.endpoints(request.user)
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
        "tab": "decisions",
        "meaning": choices.STRATEGIES.get(strategy, ""),
        "workers": workers.found,
        "decisions": decided.found if decided else [],
        "error": workers.error or (decided.error if decided else ""),
        "reasons": _reasons(decided.found if decided else []),
    }
    return htmx.render(request, "routing/endpoint.html", "routing/htmx/decisions.html", context)


@require_safe
def kv(request: HttpRequest, name: str) -> HttpResponse:
    """What the router knows of each worker's cache; htmx asks for the part again."""
    found = _endpoint(name)
    seen = selectors.kv_index(found)
    index = seen.index
    rows = kv_page.rows(index) if index is not None else ()
    context: dict[str, Any] = {
        "endpoint": found,
        "strategy": found.parsed.routing.effective_strategy,
        "tab": "kv",
        "seen": seen,
        "index": index,
        "rows": rows,
        "followed": sum(row.level == "good" for row in rows),
        "fallbacks": kv_page.fallbacks(index.fallbacks) if index is not None else (),
    }
    return htmx.render(request, "routing/kv.html", "routing/htmx/kv.html", context)


@require_safe
def doctor(request: HttpRequest, name: str) -> HttpResponse:
    """The page is there at once; its checks are made when it asks for them (?run=1)."""
    found = _endpoint(name)
    context: dict[str, Any] = {
        "endpoint": found,
        "strategy": found.parsed.routing.effective_strategy,
        "tab": "doctor",
        "checks": CHECKS,
    }
    if "run" in request.GET:
        context |= {"examination": selectors.examine(found), "made_at": timezone.now()}
    return htmx.render(request, "routing/doctor.html", "routing/htmx/doctor.html", context)


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
