"""Strategy page of an endpoint: comparison by replay, and the switch."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web import responses
from endpoints import actions
from endpoints.keys import selectors as keys_selectors
from endpoints.models import Endpoint
from endpoints.pages.head import find_endpoint, generation_of
from endpoints.refusals import RefusalError
from endpoints.spec.endpoint_spec import SpecErrors
from endpoints.spec.fields import BY_PATH, STRATEGIES
from routing import selectors
from routing.analysis import choices
from routing.pages.views import build_shell
from routing.prompts.conversation import read_dry_run

FIELDS = ("routing.strategy", "routing.session_key", "routing.enabled")


@require_http_methods(["GET", "HEAD", "POST"])
def strategy(request: HttpRequest, name: str) -> HttpResponseBase:
    found = find_endpoint(name)
    if request.method == "POST":
        return _switch_strategy(request, found)
    return _render_strategy(request, found)


def _render_strategy(
    request: HttpRequest, found: Endpoint, problems: Any = (), status: int = 200
) -> HttpResponse:
    routing = found.parsed.routing
    seen = selectors.strategy_previews(found)
    context: dict[str, Any] = {
        **build_shell(found, "strategy"),
        "seen": seen,
        "rows": [(one, choices.STRATEGIES[one.strategy]) for one in seen.found],
        "words": {path.partition(".")[2]: BY_PATH[path] for path in FIELDS},
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
        changed = actions.patch(
            request.user,
            found.name,
            {"routing": changes},
            expected_generation=generation_of(request),
            note=request.POST.get("note", ""),
        )
    except (SpecErrors, RefusalError) as error:
        status = getattr(error, "status_code", 400)
        return _render_strategy(request, found, problems=error.errors, status=status)
    if changed.generation == found.generation:
        messages.info(request, "That is how it is already; nothing was changed.")
    else:
        now = changed.parsed.routing.effective_strategy
        messages.success(request, f"Asked for {now}. Routers take it over without a restart.")
    return redirect("routing:strategy", found.name)


@require_http_methods(["GET", "HEAD", "POST"])
def explain(request: HttpRequest, name: str) -> HttpResponse:
    """Show a dry run. Reaches no worker, so every role may call it."""
    found = find_endpoint(name)
    typed = request.POST.get("prompt", "")
    chosen = request.POST.get("strategy", "")
    strategy = chosen if chosen in STRATEGIES else ""
    context: dict[str, Any] = {
        **build_shell(found, "explain"),
        "typed": typed,
        "session": request.POST.get("session", "")[:200],
        "asked_strategy": strategy,
        "key": request.POST.get("key", "")[:64],
        "keys": [
            (keys_selectors.key_id(one), one.name) for one in keys_selectors.keys_of_endpoint(found)
        ],
        "strategies": STRATEGIES,
    }
    if request.method == "POST":
        try:
            body = read_dry_run(typed)
            headers, fields = selectors.require_session_name(found, context["session"])
        except Refused as refused:
            context["problems"] = refused.errors
        else:
            body = {**body, **fields}
            key = context["key"]
            context["words"] = selectors.explain(found, body, strategy, headers, key)
            context["same"] = len({w.answer.chosen for w in context["words"] if w.answer}) == 1
    return responses.render(request, "routing/explain.html", "routing/htmx/explained.html", context)
