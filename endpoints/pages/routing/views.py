"""Routing pages: endpoints, decisions, KV index, doctor, prefixes and strategy."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web import responses
from console.web.server import sse
from endpoints import actions as endpoint_actions
from endpoints import selectors as endpoint_selectors
from endpoints.keys import selectors as keys_selectors
from endpoints.models import Endpoint
from endpoints.pages.editor.prefill import prefilled_edit_url
from endpoints.pages.head import find_endpoint, generation_of
from endpoints.pages.routing import decision_stream as pages_decision_stream
from endpoints.router import prefix_names as actions
from endpoints.router import selectors
from endpoints.spec.fields import BY_PATH, STRATEGIES
from routing.analysis import choices, kv_rows, prefixes
from routing.analysis.choices import OUTCOMES, DecisionFilter, RoutingDecision
from routing.analysis.misses import explain_miss, find_causes
from routing.client.router_reports import disagreements, unheard
from routing.doctor.checks import CHECKS
from routing.engine.strategies import STRATEGY_CHOICES
from routing.prompts.conversation import read_dry_run

ROWS_A_PAGE = 50
DECISIONS_A_PAGE = 20
LISTED_DECISIONS = 200  # without a filter; filters search all that routers report
MAX_STREAMED = 50


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    listed = endpoint_selectors.endpoints(request.user)
    page = Paginator(listed, ROWS_A_PAGE).get_page(request.GET.get("page"))
    rows = [
        {
            "endpoint": endpoint,
            "strategy": endpoint.parsed.routing.effective_strategy,
            "meaning": STRATEGY_CHOICES.get(endpoint.parsed.routing.effective_strategy, ""),
        }
        for endpoint in page.object_list
    ]
    return render(request, "routing/index.html", {"rows": rows, "page": page})


@require_safe
def endpoint(request: HttpRequest, name: str) -> HttpResponse:
    """Show workers (refreshed by htmx) and a page of decisions (the first by `decision_stream`)."""
    row = find_endpoint(name)
    workers = selectors.workers(row)
    filters = DecisionFilter.read(request.GET)
    limit = selectors.MAX_DECISIONS if filters.active else LISTED_DECISIONS
    decided = selectors.decisions(row, limit, brief=True) if not workers.error else None
    recent = selectors.name_keys(decided.found) if decided else []
    matched = [decision for decision in recent if filters.takes(decision)]
    context: dict[str, Any] = {
        **build_shell(row),
        "workers": workers.found,
        "most_tokens": max((worker.in_flight_tokens for worker in workers.found), default=0),
        "recent": len(recent),
        "matched": len(matched),
        "page": Paginator(matched, DECISIONS_A_PAGE).get_page(request.GET.get("page")),
        "streamed": MAX_STREAMED,
        "error": workers.error or (decided.error if decided else ""),
        "note": workers.note,
        "reasons": _count_reasons(matched),
        "filter": filters,
        "outcomes": OUTCOMES,
        "every_reason": choices.REASONS,
        "keys": sorted(
            {(decision.key_name, decision.key_id) for decision in recent if decision.key_id}
        ),
        "models": sorted({decision.model for decision in recent if decision.model}),
    }
    refreshed = request.headers.get("HX-Target") == "workers"
    part = "routing/htmx/workers.html" if refreshed else "routing/htmx/decisions.html"
    return responses.render(request, "routing/endpoint.html", part, context)


@require_safe
def decision_stream(request: HttpRequest, name: str) -> HttpResponseBase:
    """Stream new and changed rows of the page above."""
    find_endpoint(name)
    poll = pages_decision_stream.DecisionStream(
        name, DecisionFilter.read(request.GET), MAX_STREAMED
    ).poll
    try:
        return sse.stream(request, sse.poll_changes(poll))
    except Refused as refused:
        return HttpResponse(str(refused), status=refused.status_code, content_type="text/plain")


@require_safe
def kv(request: HttpRequest, name: str) -> HttpResponse:
    """Show the KV index; htmx refreshes the part."""
    row = find_endpoint(name)
    view = selectors.kv_index(row)
    index = view.index
    rows = kv_rows.worker_rows(index) if index is not None else ()
    context: dict[str, Any] = {
        **build_shell(row),
        "seen": view,
        "index": index,
        "rows": rows,
        "followed": sum(row.level == "good" for row in rows),
        "fallbacks": kv_rows.fallback_reasons(index.fallbacks) if index is not None else (),
    }
    return responses.render(request, "routing/kv.html", "routing/htmx/kv.html", context)


@require_safe
def routers(request: HttpRequest, name: str) -> HttpResponse:
    """Show each router and its exchange of state; htmx refreshes the part."""
    row = find_endpoint(name)
    reports = selectors.router_reports(row)
    context: dict[str, Any] = {
        **build_shell(row),
        "routers": reports,
        "store": selectors.state_store(row),
        "exchanging": any(report.exchange is not None for report in reports),
        "indexing": any(report.kv is not None for report in reports),
        "away": [report for report in reports if report.exchange and not report.exchange.connected],
        "alone": [report for report in reports if not report.error and report.exchange is None],
        "differences": disagreements(reports),
        "unheard": unheard(reports),
    }
    return responses.render(request, "routing/routers.html", "routing/htmx/routers.html", context)


@require_safe
def doctor(request: HttpRequest, name: str) -> HttpResponse:
    """Show the page at once; checks run when it requests them (?run=1)."""
    row = find_endpoint(name)
    context: dict[str, Any] = {**build_shell(row), "checks": CHECKS}
    if "run" in request.GET:
        context |= {"examination": selectors.examine(row), "made_at": timezone.now()}
    return responses.render(request, "routing/doctor.html", "routing/htmx/doctor.html", context)


@require_safe
def decision(request: HttpRequest, name: str, number: str) -> HttpResponse:
    row = find_endpoint(name)
    reply = selectors.decision(row, number)
    decided = None if reply.found is None else selectors.name_keys([reply.found])[0]
    context = {
        **build_shell(row),
        "number": number,
        "decision": decided,
        "miss": explain_miss(decided) if decided is not None else "",
        "misses": find_causes(decided) if decided is not None else (),
        "error": reply.error,
        "prefix_name": _prefix_name(row, decided),
    }
    part = "routing/htmx/decision.html"
    return responses.render(request, "routing/decision.html", part, context)


def build_shell(endpoint: Endpoint) -> dict[str, Any]:
    strategy = endpoint.parsed.routing.effective_strategy
    return {
        "endpoint": endpoint,
        "strategy": strategy,
        "meaning": STRATEGY_CHOICES.get(strategy, ""),
    }


def _prefix_name(found: Endpoint, decided: RoutingDecision | None) -> str:
    if decided is None:
        return ""
    prefix = [str(digest) for digest in decided.raw.get("prefix") or ()]
    return prefixes.find_name(prefix, selectors.prefix_names(found))


def _count_reasons(decided: list[RoutingDecision]) -> list[dict[str, Any]]:
    """Return the count per reason among the matching decisions, the most frequent first."""
    counts: dict[str, int] = {}
    for decision in decided:
        counts[decision.reason] = counts.get(decision.reason, 0) + 1
    return [
        {
            "label": choices.reason_label(reason),
            "sentence": choices.reason_description(reason),
            "count": count,
            "percent": round(100 * count / len(decided)),
        }
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


@require_safe
def show_prefixes(request: HttpRequest, name: str) -> HttpResponse:
    row = find_endpoint(name)
    reply = selectors.prefixes(row)
    context: dict[str, Any] = {
        **build_shell(row),
        "seen": reply,
        "longest": actions.MAX_NAME_LENGTH,
        "shown_blocks": selectors.SHOWN_BLOCKS,
        "previews": row.parsed.routing.prompt_preview,
        "preview_url": prefilled_edit_url(row.name, {"routing.prompt_preview": True}),
    }
    return render(request, "routing/prefixes.html", context)


@require_POST
@role_required("operator")
def name_prefix(request: HttpRequest, name: str, digest: str) -> HttpResponseBase:
    row = find_endpoint(name)
    try:
        called = actions.name_prefix(request.user, name, digest, request.POST.get("name", ""))
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(
            request,
            f"Prefix {digest} is named {called}."
            if called
            else f"The name of prefix {digest} was removed.",
        )
    return redirect("routing:prefixes", row.name)


# ---- strategy: comparison by replay, the switch, and dry runs

_STRATEGY_FIELDS = ("routing.strategy", "routing.session_key", "routing.enabled")


@require_http_methods(["GET", "HEAD", "POST"])
def show_strategy(request: HttpRequest, name: str) -> HttpResponseBase:
    row = find_endpoint(name)
    if request.method == "POST":
        return _switch_strategy(request, row)
    return _render_strategy(request, row)


def _render_strategy(
    request: HttpRequest, found: Endpoint, problems: Any = (), status: int = 200
) -> HttpResponse:
    routing = found.parsed.routing
    previews = selectors.strategy_previews(found)
    context: dict[str, Any] = {
        **build_shell(found),
        "seen": previews,
        "rows": [(preview, STRATEGY_CHOICES[preview.strategy]) for preview in previews.found],
        "words": {path.partition(".")[2]: BY_PATH[path] for path in _STRATEGY_FIELDS},
        "typed": {
            "strategy": request.POST.get("strategy", routing.strategy),
            "session_key": request.POST.get("session_key", routing.session_key),
            "enabled": bool(request.POST.get("enabled")) if request.POST else routing.enabled,
            "note": request.POST.get("note", ""),
        },
        "problems": problems,
    }
    return render(request, "routing/strategy.html", context, status=status)


@role_required("operator")
def _switch_strategy(request: HttpRequest, found: Endpoint) -> HttpResponseBase:
    changes = {
        "strategy": request.POST.get("strategy", ""),
        "session_key": request.POST.get("session_key", ""),
        "enabled": bool(request.POST.get("enabled")),
    }
    try:
        changed = endpoint_actions.patch(
            request.user,
            found.name,
            {"routing": changes},
            expected_generation=generation_of(request),
            note=request.POST.get("note", ""),
        )
    except Refused as error:
        status = error.status_code
        return _render_strategy(request, found, problems=error.errors, status=status)
    if changed.generation == found.generation:
        messages.info(request, "Nothing changed: these settings are already in effect.")
    else:
        now = changed.parsed.routing.effective_strategy
        messages.success(
            request, f"Strategy {now} is being applied. Routers reload without a restart."
        )
    return redirect("routing:strategy", found.name)


@require_http_methods(["GET", "HEAD", "POST"])
def explain(request: HttpRequest, name: str) -> HttpResponse:
    """Show a dry run. Reaches no worker, so every role may call it."""
    row = find_endpoint(name)
    typed = request.POST.get("prompt", "")
    chosen = request.POST.get("strategy", "")
    strategy = chosen if chosen in STRATEGIES else ""
    context: dict[str, Any] = {
        **build_shell(row),
        "typed": typed,
        "session": request.POST.get("session", "")[:200],
        "requested_strategy": strategy,
        "key": request.POST.get("key", "")[:64],
        "keys": [
            (keys_selectors.key_id(key), key.name) for key in keys_selectors.keys_of_endpoint(row)
        ],
        "strategies": STRATEGIES,
    }
    if request.method == "POST":
        try:
            body = read_dry_run(typed)
            headers, fields = selectors.require_session_name(row, context["session"])
        except Refused as refused:
            context["problems"] = refused.errors
        else:
            body = {**body, **fields}
            key = context["key"]
            context["words"] = selectors.explain(row, body, strategy, headers, key)
            context["same"] = len({w.answer.chosen for w in context["words"] if w.answer}) == 1
    return responses.render(request, "routing/explain.html", "routing/htmx/explained.html", context)
