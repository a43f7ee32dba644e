"""What will run, of what is typed, or of an endpoint as it is wanted now. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.permissions import role_required
from endpoints import teams
from endpoints.pages.detail.context import found
from endpoints.pages.editor.consequences import lines
from endpoints.pages.editor.feedback import typed_spec
from endpoints.placement.preview import preview
from endpoints.spec.endpoint_spec import EndpointSpec, FieldError
from endpoints.spec.rules import standing


@require_POST
@role_required("operator", somewhere=True)
def typed(request: HttpRequest) -> HttpResponse:
    spec = typed_spec(request)
    context = teams.context_of(request.user, None, request.POST.get("team", ""))
    return _page(request, spec, "", standing(spec, context))


@require_POST
@role_required("operator")
def typed_change(request: HttpRequest, name: str) -> HttpResponse:
    present = found(name)
    spec = typed_spec(request, present)
    refused = standing(spec, teams.context_of(request.user, present))
    return _page(request, spec, name, refused)


@require_safe
def stored(request: HttpRequest, name: str) -> HttpResponse:
    return _page(request, found(name).parsed, name)


def _page(
    request: HttpRequest, spec: EndpointSpec, name: str, refused: Iterable[FieldError] = ()
) -> HttpResponse:
    shown = preview(spec, refused)
    context: dict[str, Any] = {
        "name": name,
        "shown": shown,
        "command": lines(shown.argv),
        "objects": [
            {"kind": one["kind"], "name": one["metadata"]["name"], "text": _yaml(one)}
            for one in shown.objects
        ],
    }
    return render(request, "endpoints/preview.html", context)


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
