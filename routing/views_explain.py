"""Where a request would go now: the routers' own ranking of a pasted prompt, sent to no worker."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from console.core.errors import Refused
from console.web import responses
from endpoints.keys import selectors as keys_selectors
from endpoints.spec.fields import STRATEGIES
from routing import selectors, sessions
from routing.pages.views import endpoint_or_404, shell
from routing.prompts import dry_run


@require_http_methods(["GET", "HEAD", "POST"])
def explain(request: HttpRequest, name: str) -> HttpResponse:
    """It reaches no worker, so every role may ask."""
    found = endpoint_or_404(name)
    typed = request.POST.get("prompt", "")
    chosen = request.POST.get("strategy", "")
    strategy = chosen if chosen in STRATEGIES else ""
    context: dict[str, Any] = {
        **shell(found, "explain"),
        "typed": typed,
        "session": request.POST.get("session", "")[:200],
        "asked_strategy": strategy,
        "key": request.POST.get("key", "")[:64],
        "keys": [(keys_selectors.key_id(one), one.name) for one in keys_selectors.opening(found)],
        "strategies": STRATEGIES,
    }
    if request.method == "POST":
        try:
            body = dry_run.read(typed)
            headers, fields = sessions.named(found, context["session"])
        except Refused as refused:
            context["problems"] = refused.errors
        else:
            body = {**body, **fields}
            key = context["key"]
            context["words"] = selectors.explain(found, body, strategy, headers, key)
            context["same"] = len({w.answer.chosen for w in context["words"] if w.answer}) == 1
    return responses.render(request, "routing/explain.html", "routing/htmx/explained.html", context)
