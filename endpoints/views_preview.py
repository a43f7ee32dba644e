"""What will run, of what is typed, or of an endpoint as it is wanted now. Changes nothing."""

from __future__ import annotations

from typing import Any

import yaml
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.permissions import role_required
from endpoints import selectors
from endpoints.preview import preview
from endpoints.refusals import NotFoundError
from endpoints.spec import EndpointSpec
from endpoints.views_fit import typed_spec


@require_POST
@role_required("operator", somewhere=True)
def typed(request: HttpRequest) -> HttpResponse:
    return _page(request, typed_spec(request), "")


@require_safe
def stored(request: HttpRequest, name: str) -> HttpResponse:
    try:
        endpoint = selectors.get(name)
    except NotFoundError:
        raise Http404 from None
    return _page(request, endpoint.parsed, name)


def _page(request: HttpRequest, spec: EndpointSpec, name: str) -> HttpResponse:
    found = preview(spec)
    context: dict[str, Any] = {
        "name": name,
        "shown": found,
        "command": lines(found.argv),
        "objects": [
            {"kind": one["kind"], "name": one["metadata"]["name"], "text": _yaml(one)}
            for one in found.objects
        ],
    }
    return render(request, "endpoints/preview.html", context)


def lines(argv: tuple[str, ...]) -> list[str]:
    """One flag with its value a line."""
    out: list[str] = []
    for word in argv:
        if out and not word.startswith("-") and out[-1].startswith("-") and " " not in out[-1]:
            out[-1] = f"{out[-1]} {word}"
        else:
            out.append(word)
    return out


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
