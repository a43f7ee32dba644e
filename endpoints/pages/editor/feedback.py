"""Live feedback of the editor: errors, consequences, capacity check and YAML. Read only.

Messages are those of the API; incomplete input is no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.gate import role_required
from console.core import yaml_reader
from console.core.errors import Problem
from endpoints import selectors, teams
from endpoints.models import Endpoint
from endpoints.pages.editor import consequences, edit_conflict
from endpoints.pages.editor.consequences import command_lines
from endpoints.pages.editor.forms import EndpointForm, live_id
from endpoints.pages.editor.spec_editor import SpecEditor
from endpoints.pages.head import find_endpoint, generation_of
from endpoints.placement import capacity_check as fitting
from endpoints.placement import installation
from endpoints.placement.preview import preview
from endpoints.spec.endpoint_spec import GIB, EndpointSpec
from endpoints.spec.rules import requested_memory_gib, standing_errors, start_errors


@require_POST
@role_required("operator", somewhere=True)
def new(request: HttpRequest) -> HttpResponse:
    return _feedback(request, SpecEditor(request))


@require_POST
@role_required("operator")
def change(request: HttpRequest, name: str) -> HttpResponse:
    return _feedback(request, SpecEditor(request, present=find_endpoint(name)))


def typed_spec(request: HttpRequest, present: Endpoint | None = None) -> EndpointSpec:
    """Return the spec as typed; unreadable fields have their defaults."""
    return SpecEditor(request, present=present).read().form.spec()


def _feedback(request: HttpRequest, desk: SpecEditor) -> HttpResponse:
    sent = desk.read()
    form, errors = sent.form, sent.errors
    spec = form.spec()
    touched = frozenset(desk.sent.get("touched", "").split())
    generation = generation_of(request)
    endpoint = desk.present
    relevant = errors
    if endpoint is None and sent.yaml is None:
        relevant = _errors_after_edits(errors, touched)
    context: dict[str, Any] = {
        "form": form,
        "endpoint": endpoint,
        "errors": [_error_row(error, form) for error in relevant],
        "missing": [_error_row(error, form) for error in errors if error not in relevant],
        "consequences": consequences.find_consequences(
            spec, endpoint, [error.field for error in errors]
        ),
        "report": fitting.check_capacity(spec) if spec.model and not spec.simulated else None,
        "yaml": sent.yaml,
        "is_readable": sent.is_readable,
        "slots": _slots(form, relevant, touched) if sent.yaml is None else [],
        "groups": _groups(form, relevant) if sent.yaml is None else [],
        "notes": list(filter(None, [installation.unvalidated_arguments(spec)])),
        "warnings": [*_warnings(spec, form, errors)],
        "start": desk.start,
        "moved_on": endpoint is not None and edit_conflict.moved_on(endpoint, generation),
    }
    return render(request, "endpoints/htmx/look.html", context)


def _warnings(
    spec: EndpointSpec, form: EndpointForm, errors: tuple[Problem, ...]
) -> Iterator[dict[str, Any]]:
    """Yield what the spec costs, unless an error of the same fields may be the reason."""
    for path, text in (
        ("router.replicas", installation.separate_routers_warning(spec)),
        ("resources.memory_gib", _overallocation(spec)),
    ):
        section = path.partition(".")[0] + "."
        refused = any(error.field.startswith(section) for error in errors)
        if text and not refused and path in form.fields:
            bound = form[path]
            yield {"label": bound.label, "href": bound.id_for_label, "text": text}


def _overallocation(spec: EndpointSpec) -> str:
    """Return by how much all endpoints of this machine, with this spec, request more memory than
    there is; "" if they do not. Not an error: workers seldom use all that they request.
    """
    if spec.on_cluster:
        return ""
    stored = [row.parsed for row in selectors.endpoints().exclude(name=spec.name)]
    here = [spec, *(other for other in stored if not other.on_cluster)]
    requested_gib = sum(requested_memory_gib(each) * each.replicas for each in here)
    total_gib = installation.memory_bytes() / GIB
    if requested_gib <= total_gib:
        return ""
    return (
        f"With this one, the endpoints of this machine request {requested_gib:g} GiB of memory; "
        f"it has {total_gib:.1f}. Workers may be killed. Pause or shrink an endpoint."
    )


def _errors_after_edits(
    errors: tuple[Problem, ...], touched: frozenset[str]
) -> tuple[Problem, ...]:
    """Return the errors to show on a new endpoint: none before the first edit, then all but empty
    fields that were not edited.
    """
    if not touched:
        return ()
    return tuple(error for error in errors if error.field in touched or not _is_empty(error))


def _is_empty(error: Problem) -> bool:
    return error.code == "required" or error.value in (None, "")


def _error_row(error: Problem, form: EndpointForm) -> dict[str, Any]:
    has_field = error.field in form.fields
    return {
        "error": error,
        "label": form[error.field].label if has_field else error.field,
        "href": form[error.field].id_for_label if has_field else "",
    }


def _slots(
    form: EndpointForm, errors: tuple[Problem, ...], touched: frozenset[str]
) -> list[dict[str, Any]]:
    by_field: dict[str, list[Problem]] = {}
    for error in errors:
        by_field.setdefault(error.field, []).append(error)
    return [
        {
            "id": live_id(path),
            "auto_id": form[path].auto_id,
            "errors": by_field.get(path, []) if path in touched else [],
        }
        for path in form.fields
    ]


def _groups(form: EndpointForm, errors: tuple[Problem, ...]) -> list[dict[str, Any]]:
    wrong = {error.field for error in errors}
    return [{**summary, "wrong": len(wrong & summary["paths"])} for summary in form.summaries()]


@require_POST
@role_required("operator", somewhere=True)
def preview_typed(request: HttpRequest) -> HttpResponse:
    spec = typed_spec(request)
    context = teams.context_of(request.user, None, request.POST.get("team", ""))
    refused = [*standing_errors(spec, context), *start_errors(spec, context)]
    return _page(request, spec, "", refused)


@require_POST
@role_required("operator")
def typed_change(request: HttpRequest, name: str) -> HttpResponse:
    present = find_endpoint(name)
    spec = typed_spec(request, present)
    context = teams.context_of(request.user, present)
    refused = [*standing_errors(spec, context), *start_errors(spec, context, present.parsed)]
    return _page(request, spec, name, refused)


@require_safe
def preview_stored(request: HttpRequest, name: str) -> HttpResponse:
    return _page(request, find_endpoint(name).parsed, name)


def _page(
    request: HttpRequest, spec: EndpointSpec, name: str, refused: Iterable[Problem] = ()
) -> HttpResponse:
    previewed = preview(spec, refused)
    context: dict[str, Any] = {
        "name": name,
        "shown": previewed,
        "command": command_lines(previewed.argv),
        "objects": [
            {"kind": body["kind"], "name": body["metadata"]["name"], "text": _yaml(body)}
            for body in previewed.objects
        ],
    }
    return render(request, "endpoints/preview.html", context)


def _yaml(value: Any) -> str:
    return yaml_reader.render(value, allow_unicode=True, width=100)
