"""The beginnings that an endpoint's prompts share, who holds them, and what people call them."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.permissions import role_required
from console.core.errors import Refused
from routing import actions, selectors
from routing.pages.views import endpoint_or_404, shell


@require_safe
def prefixes(request: HttpRequest, name: str) -> HttpResponse:
    found = endpoint_or_404(name)
    seen = selectors.prefixes(found)
    context: dict[str, Any] = {
        **shell(found, "prefixes"),
        "seen": seen,
        "longest": actions.LONGEST,
        "shown_blocks": selectors.SHOWN_BLOCKS,
    }
    return render(request, "routing/prefixes.html", context)


@require_POST
@role_required("operator")
def name_prefix(request: HttpRequest, name: str, digest: str) -> HttpResponseBase:
    found = endpoint_or_404(name)
    try:
        called = actions.name_prefix(request.user, name, digest, request.POST.get("name", ""))
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, f"It is called {called}." if called else "Its name is gone.")
    return redirect("routing:prefixes", found.name)
