"""Render a full page or an htmx partial."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render as render_template
from django.utils.cache import patch_vary_headers


def wants_partial(request: HttpRequest) -> bool:
    """Return whether htmx requests a partial (a history restore needs the full page)."""
    return (
        request.headers.get("HX-Request") == "true"
        and request.headers.get("HX-History-Restore-Request") != "true"
        and request.headers.get("HX-Boosted") != "true"
    )


def render(
    request: HttpRequest,
    page_template: str,
    partial_template: str,
    ctx: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render the partial for htmx, else the page that includes it with the same context."""
    template = partial_template if wants_partial(request) else page_template
    response = render_template(request, template, ctx, status=status)
    patch_vary_headers(response, ("HX-Request",))
    return response
