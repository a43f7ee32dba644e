"""Template context of the endpoint page, and its prompt box."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
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
from endpoints.pages.head import find_endpoint, poll_s
from endpoints.prompt import client
from endpoints.prompt.client import PromptAnswer, PromptRequest

EVENTS_SHOWN = 8
PROMPT_DEADLINE_S = 90.0


def live_context(endpoint: Endpoint) -> dict[str, Any]:
    of_cluster = selectors.cluster_context(endpoint)
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
    """`left`: objects that abandoning would leave in a cluster."""
    on_cluster = endpoint.parsed.on_cluster
    return {
        "endpoint": endpoint,
        "spec": endpoint.parsed,
        "owner": owner_of(endpoint.name),
        "left": abandonment.remaining_objects(endpoint) if on_cluster else None,
        **more,
    }


@require_POST
@role_required("operator")
def prompt(request: HttpRequest, name: str) -> HttpResponse:
    """Send a prompt through the router; the console's key never reaches the page."""
    endpoint = find_endpoint(name)
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
    if responses.wants_partial(request):
        return render(request, "endpoints/htmx/answer.html", context)
    return render(request, "endpoints/detail.html", context)
