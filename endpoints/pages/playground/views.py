"""Playground views: chat with one endpoint, or with two side by side."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import allows
from console.core.errors import Problem, Refused
from console.web.server import sse
from endpoints import selectors as endpoint_selectors
from endpoints.choices import Phase
from endpoints.models import Endpoint
from endpoints.pages.head import find_endpoint
from endpoints.pages.playground import answers
from routing.prompts import snippets
from routing.prompts.conversation import PARAMETERS, Conversation, from_form, from_json

MAX_BODY = 2 * 1024**2
_FACTS_TIME_S = 15.0  # after the response deadline, for its facts
# Strategies whose state the router keeps under every strategy; kvaware also keeps prefixes.
_EVALUABLE_STRATEGIES = ("session", "roundrobin")
_LAST_USED = "playground_endpoint"  # cookie


@require_safe
def index(request: HttpRequest) -> HttpResponseBase:
    """Open the chat of the requested, last used or first Ready endpoint; `with` adds a second."""
    listed = [row for row in endpoint_selectors.listed(request.user) if not row.deleting]
    names = {row.name for row in listed}
    chosen_name, second = request.GET.get("endpoint", ""), request.GET.get("with", "")
    if chosen_name and chosen_name not in names:
        raise Http404
    if not listed:
        return render(request, "playground/index.html")
    last = request.COOKIES.get(_LAST_USED, "")
    ready = next((row.name for row in listed if row.status.phase == Phase.READY), listed[0].name)
    name = chosen_name or (last if last in names else ready)
    query = f"?with={second}" if second in names else ""
    return redirect(reverse("playground:endpoint", args=[name]) + query)


@require_http_methods(["GET", "HEAD", "POST"])
def endpoint(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the playground; POST answers one message without script (the script uses `chat`)."""
    context = _context(request, find_endpoint(name))
    if request.method == "POST":
        return _one_shot(request, context)
    response = render(request, "playground/endpoint.html", context)
    path, secure = reverse("playground:index"), settings.SESSION_COOKIE_SECURE
    response.set_cookie(_LAST_USED, name, path=path, secure=secure, httponly=True, samesite="Lax")
    return response


@role_required("operator")
def _one_shot(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    here: Endpoint = context["endpoint"]
    try:
        conversation = from_form(request.POST.dict())
        answer, details = answers.respond(here, conversation)
    except Refused as refused:
        context |= {"problems": refused.errors}
        return render(request, "playground/endpoint.html", context, status=refused.status_code)
    context |= {"text": answer.text, "answer": details}
    return render(request, "playground/endpoint.html", context)


@never_cache
@require_POST
@role_required("operator")
def chat(request: HttpRequest, name: str) -> HttpResponseBase:
    """Stream the response to a conversation as server-sent events."""
    here = find_endpoint(name)
    try:
        conversation = _parse_conversation(request)
        ask = answers.prepare(here, conversation)
        life_s = ask.deadline_s + _FACTS_TIME_S
        source = answers.events(here, ask, conversation, answers.WorkerCounters.of(here))
        return sse.stream(request, source, life_s=life_s)
    except Refused as refused:
        return _error_response(refused)


@require_POST
def code(request: HttpRequest, name: str) -> HttpResponse:
    """Return the conversation as code snippets. Sends nothing, so every role may call it."""
    here = find_endpoint(name)
    try:
        conversation = _parse_conversation(request)
    except Refused as refused:
        return _error_response(refused)
    body = snippets.request_body(
        here.name,
        list(conversation.messages),
        conversation.api,
        conversation.fields,
        conversation.prompt,
    )
    code_snippets = snippets.snippets(
        here.status.caller_url or "http://ROUTER", conversation.api, body
    )
    return render(
        request, "playground/htmx/code.html", {"snippets": code_snippets, "endpoint": here}
    )


def _parse_conversation(request: HttpRequest) -> Conversation:
    try:
        if len(request.body) > MAX_BODY:
            raise ValueError
        data = json.loads(request.body)
    except (ValueError, RecursionError):
        text = f"The body is not JSON, or larger than {MAX_BODY >> 20} MiB."
        remedy = "Send one JSON object with messages."
        raise Refused(Problem("", "", text, remedy, "invalid")) from None
    return from_json(data)


def _error_response(refused: Refused) -> HttpResponse:
    errors = [
        {"field": error.field, "detail": error.message, "remedy": error.remedy, "code": error.code}
        for error in refused.errors
    ]
    return JsonResponse({**errors[0], "errors": errors}, status=refused.status_code)


def _context(request: HttpRequest, here: Endpoint) -> dict[str, Any]:
    others = [row for row in endpoint_selectors.listed(request.user) if not row.deleting]
    chosen = next((other.name for other in others if other.name == request.GET.get("with", "")), "")
    second = endpoint_selectors.get(chosen) if chosen else None
    ready = (
        other for other in others if other.status.phase == Phase.READY and other.name != here.name
    )
    panes = [_pane("a", here)] + ([_pane("b", second)] if second else [])
    return {
        "endpoint": here,
        "panes": panes,
        "second": second,
        "suggested": next(ready, here).name,
        "others": others,
        "parameters": [
            (parameter, request.POST.get(parameter.name, parameter.initial))
            for parameter in PARAMETERS
        ],
        "typed": request.POST,
        "may_send": allows(request.user, "operator", of=here),
    }


def _pane(name: str, here: Endpoint) -> dict[str, Any]:
    """Return the context; `routes` are strategies the router can evaluate now."""
    strategy = here.parsed.routing.effective_strategy
    strategies = (
        (*_EVALUABLE_STRATEGIES, "prefixaware") if strategy == "kvaware" else _EVALUABLE_STRATEGIES
    )
    return {
        "name": name,
        "endpoint": here,
        "strategy": strategy,
        "routes": [name for name in strategies if name != strategy],
        "workers": [row.name for row in endpoint_selectors.workers(here)],
    }
