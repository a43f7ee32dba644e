"""What the page of one endpoint shows, its prompt box and its keys."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from console.accounts.permissions import role_required
from console.web import htmx
from endpoints import abandoning, actions, keys, prompting, selectors
from endpoints.choices import STEP_LABELS, Step
from endpoints.forms import KeyForm, PromptForm
from endpoints.head import poll_s
from endpoints.models import Endpoint
from endpoints.owners import owner_of
from endpoints.prompting import Answer, Ask
from endpoints.refusals import NotFoundError, RefusalError
from endpoints.spec import SpecErrors

EVENTS_SHOWN = 8
PROMPT_DEADLINE_S = 90.0
# Python itself refuses to read a number of thousands of digits.
WHOLE = re.compile(r"-?[0-9]{1,18}")


def live_context(endpoint: Endpoint) -> dict[str, Any]:
    """The part which changes by itself, asked for every few seconds: few queries."""
    of_cluster = selectors.of_cluster(endpoint)
    return {
        **of_cluster,
        "conditions": [row for row in of_cluster["conditions"] if not row["ready"]],
        "pods": [row for row in of_cluster["pods"] if row["state"] != "ready"],
        "drift_owner": owner_of(endpoint.name) if endpoint.status.drift else None,
        "endpoint": endpoint,
        "status": endpoint.status,
        "poll_s": poll_s(endpoint),
        "steps": [
            {**step, "label": STEP_LABELS.get(Step(step["code"]), step["code"])}
            for step in endpoint.status.steps
        ],
        "workers": list(selectors.workers(endpoint)),
        "events": list(selectors.events(endpoint)[:EVENTS_SHOWN]),
    }


def detail_context(endpoint: Endpoint, **more: Any) -> dict[str, Any]:
    return {
        **live_context(endpoint),
        "spec": endpoint.parsed,
        "owner": owner_of(endpoint.name),
        "key_file": keys.file_to_show(endpoint.name),
        "prompt_form": PromptForm(),
        "brief_head": True,
        **more,
    }


def access_context(endpoint: Endpoint, **more: Any) -> dict[str, Any]:
    return {
        "endpoint": endpoint,
        "status": endpoint.status,
        "keys": list(selectors.living_keys(endpoint)),
        "key_form": KeyForm(),
        "key_file": keys.file_to_show(endpoint.name),
        **more,
    }


def settings_context(endpoint: Endpoint, **more: Any) -> dict[str, Any]:
    """`left`: what abandoning would leave in a cluster, for an endpoint which is on one."""
    on_cluster = endpoint.parsed.on_cluster
    return {
        "endpoint": endpoint,
        "spec": endpoint.parsed,
        "owner": owner_of(endpoint.name),
        "left": abandoning.left(endpoint) if on_cluster else None,
        **more,
    }


@require_POST
@role_required("operator")
def prompt(request: HttpRequest, name: str) -> HttpResponse:
    """Through the router, as any caller; the console's key never reaches the page."""
    endpoint = found(name)
    form = PromptForm(request.POST)
    answer: Answer | None = None
    if form.is_valid() and endpoint.status.url:
        answer = prompting.ask(
            Ask(
                url=selectors.ask_url(endpoint),
                key=selectors.console_key(endpoint),
                model=endpoint.name,
                prompt=form.cleaned_data["prompt"],
                max_tokens=form.cleaned_data["max_tokens"],
                pin=form.cleaned_data["worker"],
                deadline_s=PROMPT_DEADLINE_S,
            )
        )
    context = detail_context(endpoint, answer=answer, prompt_form=form)
    if htmx.asked(request):
        return render(request, "endpoints/htmx/answer.html", context)
    return render(request, "endpoints/detail.html", context)


@never_cache
@require_POST
@role_required("operator")
def create_key(request: HttpRequest, name: str) -> HttpResponse:
    """Shows the key in this very answer: it is nowhere to be found afterwards."""
    endpoint = found(name)
    form = KeyForm(request.POST)
    form.full_clean()
    try:
        made = actions.create_key(request.user, name, request.POST.get("name", ""))
    except (SpecErrors, RefusalError) as error:
        for item in error.errors:
            form.add_error("name", f"{item.message} {item.remedy}")
        context = access_context(endpoint, key_form=form)
        return render(request, "endpoints/access.html", context, status=400)
    context = access_context(endpoint, new_key=made.clear)
    return render(request, "endpoints/access.html", context)


@require_POST
@role_required("operator")
def revoke_key(request: HttpRequest, name: str, key_id: str) -> HttpResponseBase:
    found(name)
    try:
        key = actions.revoke_key(request.user, name, key_id)
    except NotFoundError as error:
        raise Http404(str(error)) from None
    except RefusalError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"The key {key.name} is revoked; the router refuses it now.")
    return redirect("endpoints:access", name)


def found(name: str) -> Endpoint:
    try:
        return selectors.get(name)
    except NotFoundError as error:
        raise Http404(str(error)) from None


def generation_of(request: HttpRequest) -> int | None:
    """The generation which the page showed; a page without one asks for no check."""
    text = request.POST.get("generation", "")
    return int(text) if WHOLE.fullmatch(text) else None
