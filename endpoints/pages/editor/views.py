"""Editor pages: create, clone and update an endpoint; the options and check of its model.

Input survives errors, a change of cluster, invalid YAML and edit conflicts. `actions` validates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import allows
from console.clusters import selectors as clusters
from console.core.errors import STALE, Problem, Refused
from endpoints import actions, teams
from endpoints.models import Endpoint
from endpoints.owners import owner_of
from endpoints.pages.editor import edit_conflict, presets, spec_text
from endpoints.pages.editor.forms import EndpointForm
from endpoints.pages.editor.spec_editor import SpecEditor, YamlTab
from endpoints.pages.head import find_endpoint, generation_of
from endpoints.placement import model_hub, model_list
from endpoints.placement.model_hub import HubStatus
from endpoints.refusals import ConflictError
from endpoints.spec.endpoint_spec import SpecErrors
from endpoints.spec.validators import model_problem

Save = Callable[[dict[str, Any]], Endpoint]


class CannotStart(SpecErrors):
    """The capacity check says that no worker can start; a confirmation creates the endpoint."""


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator", somewhere=True)
def new(request: HttpRequest) -> HttpResponseBase:
    return _create(request, SpecEditor(request))


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def clone(request: HttpRequest, name: str) -> HttpResponseBase:
    """Create an endpoint from this one's spec. Needs the operator role on this one."""
    return _create(request, SpecEditor(request, source=find_endpoint(name)))


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def edit(request: HttpRequest, name: str) -> HttpResponseBase:
    endpoint = find_endpoint(name)
    desk = SpecEditor(request, present=endpoint)

    def save(data: dict[str, Any]) -> Endpoint:
        made = actions.update(
            request.user,
            name,
            data,
            expected_generation=generation_of(request),
            note=desk.sent.get("note", ""),
        )
        if made.generation == endpoint.generation:
            messages.info(request, f"No changes: {name} stays as it is.")
        else:
            messages.success(request, f"Changes to {name} are being applied.")
        return made

    if request.method != "POST":
        return _page(request, desk, desk.initial_form)
    if request.GET.get("drawn") == "merge":
        return _merge(request, desk, endpoint)
    if "drawn" not in request.GET and edit_conflict.moved_on(endpoint, generation_of(request)):
        return _conflict(request, desk, endpoint)
    try:
        return _save_submission(request, desk, save)
    except ConflictError as error:
        if error.code != STALE:
            raise
        return _conflict(request, desk, find_endpoint(name))


def _create(request: HttpRequest, desk: SpecEditor) -> HttpResponseBase:
    def save(data: dict[str, Any]) -> Endpoint:
        team, note = desk.sent.get("team"), desk.sent.get("note", "")
        if "anyway" not in desk.sent and (doubts := desk.doubts(data)):
            raise CannotStart(doubts)
        made = actions.create(request.user, data, team=team, note=note)
        messages.success(request, f"{made.name} created; its steps are shown below.")
        return made

    if request.method != "POST":
        return _page(request, desk, desk.initial_form)
    return _save_submission(request, desk, save)


def _save_submission(request: HttpRequest, desk: SpecEditor, save: Save) -> HttpResponseBase:
    """Redraw or save the submission, from its form, or from its YAML if that was changed."""
    drawn = request.GET.get("drawn")
    if drawn == "start":
        return _page(request, desk, desk.started(desk.sent.get("start_with", "")))
    if drawn == "yaml" and not desk.is_yaml:
        form = desk.typed
        return _page(request, desk, form, yaml=YamlTab(desk.text_of(form)))
    if desk.is_yaml:
        return _draw_yaml(request, desk, drawn) if drawn else _save_yaml(request, desk, save)
    if drawn is not None:
        return _page(request, desk, desk.drawn_anew())
    form = desk.typed
    try:
        return redirect(save(form.spec_data()))
    except Refused as error:
        return _render_refusal(request, desk, form, error)


def _draw_yaml(request: HttpRequest, desk: SpecEditor, tab: str) -> HttpResponse:
    """Show the YAML's values in the form, or the YAML again if no form can hold them."""
    sent = desk.read()
    if tab == "yaml" or not sent.is_readable:
        status = 200 if sent.is_readable else 400
        return _page(request, desk, sent.form, yaml=sent.yaml, status=status)
    sent.form.refuse(sent.errors)
    return _page(request, desk, sent.form)


def _save_yaml(request: HttpRequest, desk: SpecEditor, save: Save) -> HttpResponseBase:
    try:
        text = spec_text.parse_text(desk.sent["yaml"])
    except SpecErrors:
        sent = desk.read()
        return _page(request, desk, sent.form, yaml=sent.yaml, status=400)
    try:
        return redirect(save(desk.whole(text.data)))
    except Refused as error:
        lines = spec_text.locate_errors(error.errors, text.lines)
        return _render_refusal(
            request, desk, desk.read().form, error, YamlTab(desk.sent["yaml"], lines)
        )


def _render_refusal(
    request: HttpRequest,
    desk: SpecEditor,
    form: EndpointForm,
    error: Refused,
    yaml: YamlTab | None = None,
) -> HttpResponse:
    _reraise_stale(error)
    if yaml is None:
        form.refuse(problem for problem in error.errors if problem.field not in _SIDE_FIELDS)
    beside = {problem.field: problem for problem in error.errors if problem.field in _SIDE_FIELDS}
    return _page(
        request,
        desk,
        form,
        yaml=yaml,
        status=error.status_code,
        beside=beside,
        cannot_start=isinstance(error, CannotStart),
    )


_SIDE_FIELDS = ("note", "team")


def _reraise_stale(error: Refused) -> None:
    """Re-raise edit conflicts, which are handled by `_conflict`."""
    if isinstance(error, ConflictError) and error.code == STALE:
        raise error


def _conflict(request: HttpRequest, desk: SpecEditor, endpoint: Endpoint) -> HttpResponse:
    sent = desk.read()
    if not sent.is_readable:
        return _page(request, desk, sent.form, yaml=sent.yaml, status=400)
    conflict = edit_conflict.find_conflict(endpoint, generation_of(request), sent.form.flat())
    return _page(request, desk, sent.form, yaml=sent.yaml, status=409, conflict=conflict)


def _merge(request: HttpRequest, desk: SpecEditor, endpoint: Endpoint) -> HttpResponse:
    """Show the merged values for review before saving."""
    generation = desk.sent.get("seen_generation", "")
    if generation != str(endpoint.generation):
        return _conflict(request, desk, endpoint)
    mine = desk.read().form.flat()
    conflict = edit_conflict.find_conflict(endpoint, generation_of(request), mine)
    form = desk.holding(conflict.merged(mine, desk.sent))
    desk.sent["generation"] = generation
    return _page(request, desk, form, merged=True)


def _page(
    request: HttpRequest,
    desk: SpecEditor,
    form: EndpointForm,
    *,
    yaml: YamlTab | None = None,
    status: int = 200,
    conflict: edit_conflict.EditConflict | None = None,
    merged: bool = False,
    beside: dict[str, Problem] | None = None,
    cannot_start: bool = False,
) -> HttpResponse:
    endpoint, source = desk.present, desk.source
    team = source.team.slug if source is not None and source.team else ""
    context = {
        "form": form,
        "machine": desk.context,
        "endpoint": endpoint,
        "source": source,
        "yaml": yaml,
        "starts": _preset_context(form) if not (endpoint or source or yaml) else [],
        "start": desk.start,
        "teams": [] if endpoint else teams.choices(request.user),
        "team": desk.sent.get("team", team),
        "nobody": allows(request.user, "operator"),
        "note": desk.sent.get("note", desk.linked_note),
        "generation": desk.sent.get("generation", endpoint.generation if endpoint else ""),
        "conflict": conflict,
        "owner": owner_of(endpoint.name) if endpoint else None,
        "left_off": desk.left_off,
        "filled": desk.filled if not form.errors else [],
        "not_filled": desk.not_filled,
        "merged": merged,
        "cannot_start": cannot_start,
        "touched": desk.sent.get("touched", ""),
        "beside": beside or {},
        "dirty": bool(desk.filled) or (request.method == "POST" and _is_edited(request, desk)),
        "wrong": bool(form.errors or beside or (yaml and yaml.errors)),
    }
    template = "endpoints/form.html" if endpoint is None else "endpoints/edit.html"
    return render(request, template, context, status=status)


def _is_edited(request: HttpRequest, desk: SpecEditor) -> bool:
    """Return False if only the tab was switched."""
    return request.GET.get("drawn") not in ("form", "yaml") or bool(desk.sent.get("touched"))


def _preset_context(form: EndpointForm) -> list[dict[str, Any]]:
    labels = {field.path: field.label for field in form.shown}
    there = form.cluster is not None
    return [
        {
            "start": start,
            "sets": [
                {
                    "label": labels.get(choice.path, choice.path),
                    "value": choice.value,
                    "why": choice.why,
                }
                for choice in start.here(cluster=there)
            ],
        }
        for start in presets.STARTS
    ]


MAX_MODEL_LENGTH = 200
MODEL_CHECKED = "model-checked"
"""htmx event after a lookup that refuses the model; the form's errors are then updated."""


@require_safe
@role_required("operator", somewhere=True)
def model_options(request: HttpRequest) -> HttpResponse:
    """Render the options of the model field. A complete name is no search: all are listed."""
    typed, cluster = _typed(request), _cluster(request)
    models = model_list.list_models("", cluster)
    if typed and not any(model.name == typed for model in models):
        models = model_list.list_models(typed, cluster)
    context = {"models": models, "typed": typed, "cluster": cluster}
    return render(request, "endpoints/htmx/model_options.html", context)


@require_safe
@role_required("operator", somewhere=True)
def model_facts(request: HttpRequest) -> HttpResponse:
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
    return str(request.GET.get("model", "")).strip()[:MAX_MODEL_LENGTH]


def _cluster(request: HttpRequest) -> str:
    name = str(request.GET.get("placement.cluster", ""))
    return name if name in clusters.names() else ""
