"""Endpoint pages. Changes use POST, need the operator role, and work without JavaScript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web import responses
from endpoints import abandonment, actions, selectors
from endpoints.choices import STEP_LABELS, ProgressStep
from endpoints.keys import storage
from endpoints.models import Endpoint
from endpoints.owners import owner_of
from endpoints.pages.editor.forms import PromptForm
from endpoints.pages.head import WHOLE, find_endpoint, generation_of, poll_s
from endpoints.prompt import client
from endpoints.prompt.client import PromptAnswer, PromptRequest
from endpoints.refusals import NotFoundError

EVENTS_SHOWN = 8
PROMPT_DEADLINE_S = 90.0
_TABS = frozenset({"workers", "revisions", "settings"})


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


@require_safe
def detail(request: HttpRequest, name: str) -> HttpResponse:
    return render(request, "endpoints/detail.html", detail_context(find_endpoint(name)))


@require_safe
def live(request: HttpRequest, name: str) -> HttpResponse:
    return render_part(request, name, "endpoints/htmx/live.html", live_context)


def render_part(
    request: HttpRequest, name: str, template: str, context: Callable[[Endpoint], dict[str, Any]]
) -> HttpResponse:
    """Render a polled part of the page; redirect htmx to the list if the endpoint was deleted."""
    try:
        endpoint = selectors.get(name)
    except NotFoundError:
        messages.info(request, f"{name} was deleted.")
        return HttpResponse(headers={"HX-Redirect": reverse("endpoints:list")})
    return render(request, template, context(endpoint))


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


@require_POST
@role_required("operator")
def scale(request: HttpRequest, name: str) -> HttpResponseBase:
    typed = request.POST.get("replicas", "").strip()
    replicas: Any = int(typed) if WHOLE.fullmatch(typed) else typed
    text, generation = (
        f"{name}: scaling to {typed} worker{'' if typed == '1' else 's'}.",
        generation_of(request),
    )
    return run_and_redirect(
        request, name, text, actions.scale, replicas, expected_generation=generation
    )


@require_POST
@role_required("operator")
def pause(request: HttpRequest, name: str) -> HttpResponseBase:
    """Pause; forms that show the name field require the typed name."""
    if request.POST.get("name", name).strip() != name:
        find_endpoint(name)
        messages.error(
            request, f"Name does not match: type {name} to pause it. Nothing was changed."
        )
        return redirect(_back_url(request), name)
    return run_and_redirect(
        request, name, f"{name}: pausing. Workers finish their requests, then stop.", actions.pause
    )


@require_POST
@role_required("operator")
def resume(request: HttpRequest, name: str) -> HttpResponseBase:
    return run_and_redirect(request, name, f"{name}: resuming.", actions.resume)


@require_POST
@role_required("operator")
def rollback(request: HttpRequest, name: str, number: int) -> HttpResponseBase:
    generation, note = generation_of(request), request.POST.get("note", "")
    text = f"{name}: rolling back to revision {number}."
    return run_and_redirect(
        request, name, text, actions.rollback, number, expected_generation=generation, note=note
    )


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def delete(request: HttpRequest, name: str) -> HttpResponseBase:
    """Delete; the name must be typed, since deletion is irreversible."""
    endpoint = find_endpoint(name)
    typed = request.POST.get("name", "").strip()
    error = ""
    if request.method == "POST":
        if typed == name:
            actions.delete(request.user, name)
            messages.success(request, f"{name}: deleting.")
            return redirect("endpoints:list")
        error = f"“{typed}” does not match. Type {name} to delete it."
    context = {"endpoint": endpoint, "typed": typed, "error": error}
    if endpoint.parsed.on_cluster:
        context["left"] = abandonment.remaining_objects(endpoint)
    return render(request, "endpoints/delete.html", context, status=400 if error else 200)


def run_and_redirect(
    request: HttpRequest,
    name: str,
    text: str,
    act: Callable[..., Endpoint],
    *args: Any,
    **more: Any,
) -> HttpResponseBase:
    """Call `act` with the user, the endpoint's name and the further arguments; then show `text`, or
    its errors.
    """
    find_endpoint(name)
    try:
        act(request.user, name, *args, **more)
    except Refused as error:
        for item in error.errors:
            messages.error(request, f"{item.message} {item.remedy}")
    else:
        messages.success(request, text)
    return redirect(_back_url(request), name)


def _back_url(request: HttpRequest) -> str:
    """Return the URL of the tab named in a hidden field."""
    tab = request.POST.get("back", "")
    return f"endpoints:{tab}" if tab in _TABS else "endpoints:detail"
