"""What the page of one endpoint shows, and its prompt box."""

from __future__ import annotations

import re
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from console.accounts.gate import role_required
from console.web import responses
from endpoints import abandonment, selectors
from endpoints.choices import STEP_LABELS, ProgressStep
from endpoints.keys import storage
from endpoints.models import Endpoint
from endpoints.owners import owner_of
from endpoints.pages.editor.forms import PromptForm
from endpoints.pages.head import poll_s
from endpoints.prompt import client
from endpoints.prompt.client import PromptAnswer, PromptRequest
from endpoints.refusals import NotFoundError

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
            {**step, "label": STEP_LABELS.get(ProgressStep(step["code"]), step["code"])}
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
        "key_file": storage.file_to_show(endpoint.name),
        "prompt_form": PromptForm(),
        "brief_head": True,
        **more,
    }


def settings_context(endpoint: Endpoint, **more: Any) -> dict[str, Any]:
    """`left`: what abandoning would leave in a cluster, for an endpoint which is on one."""
    on_cluster = endpoint.parsed.on_cluster
    return {
        "endpoint": endpoint,
        "spec": endpoint.parsed,
        "owner": owner_of(endpoint.name),
        "left": abandonment.left(endpoint) if on_cluster else None,
        **more,
    }


@require_POST
@role_required("operator")
def prompt(request: HttpRequest, name: str) -> HttpResponse:
    """Through the router, as any caller; the console's key never reaches the page."""
    endpoint = found(name)
    form = PromptForm(request.POST)
    answer: PromptAnswer | None = None
    if form.is_valid() and endpoint.status.url:
        answer = client.ask(
            PromptRequest(
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
    if responses.asked(request):
        return render(request, "endpoints/htmx/answer.html", context)
    return render(request, "endpoints/detail.html", context)


def found(name: str) -> Endpoint:
    try:
        return selectors.get(name)
    except NotFoundError as error:
        raise Http404(str(error)) from None


def generation_of(request: HttpRequest) -> int | None:
    """The generation which the page showed; a page without one asks for no check."""
    text = request.POST.get("generation", "")
    return int(text) if WHOLE.fullmatch(text) else None
