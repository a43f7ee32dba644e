"""Parts of the endpoint form for the model field: the catalogue's options and the name check."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.accounts.gate import role_required
from console.clusters import selectors as clusters
from endpoints.placement import model_hub, model_list
from endpoints.placement.model_hub import HubStatus
from endpoints.spec.validators import model_problem

LONGEST = 200
MODEL_CHECKED = "model-checked"
"""htmx event after a lookup that refuses the model; the form's errors are then updated."""


@require_safe
@role_required("operator", somewhere=True)
def options(request: HttpRequest) -> HttpResponse:
    """Render the options of the model field. A complete name is no search: all are listed."""
    typed, cluster = _typed(request), _cluster(request)
    found = model_list.list_models("", cluster)
    if typed and not any(one.name == typed for one in found):
        found = model_list.list_models(typed, cluster)
    context = {"models": found, "typed": typed, "cluster": cluster}
    return render(request, "endpoints/htmx/model_options.html", context)


@require_safe
@role_required("operator", somewhere=True)
def facts(request: HttpRequest) -> HttpResponse:
    """Render what is known of the typed model. A Hugging Face name is looked up, in this request of
    its own so that the form never waits for it.
    """
    typed, cluster = _typed(request), _cluster(request)
    if not typed or model_problem(typed) is not None:
        return HttpResponse()
    simulated = request.GET.get("engine") == "simulated"
    hub = None
    if model_hub.is_hub_name(typed) and not simulated:
        hub = model_hub.lookup(typed)
    context = {"model": model_list.find_model(typed, cluster), "hub": hub, "cluster": cluster}
    answer = render(request, "endpoints/htmx/model_facts.html", context)
    if hub is not None and hub.status in (HubStatus.MISSING, HubStatus.PRIVATE):
        answer["HX-Trigger"] = MODEL_CHECKED
    return answer


def _typed(request: HttpRequest) -> str:
    return str(request.GET.get("model", "")).strip()[:LONGEST]


def _cluster(request: HttpRequest) -> str:
    name = str(request.GET.get("placement.cluster", ""))
    return name if name in clusters.names() else ""
