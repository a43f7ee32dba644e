"""The Cache page: tiers, their nodes and what they hold; resize and delete for operators."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from cachetier import actions, selectors
from cachetier.errors import Refused
from cachetier.models import GIB
from console.accounts.permissions import role_required
from console.web import htmx


@require_safe
def tiers(request: HttpRequest) -> HttpResponse:
    shown = [
        {"tier": tier, "numbers": selectors.numbers(tier), "size_gib": tier.capacity_bytes / GIB}
        for tier in selectors.tiers()
    ]
    context: dict[str, Any] = {"rows": shown}
    return htmx.render(request, "cachetier/tiers.html", "cachetier/htmx/tiers.html", context)


@require_POST
@role_required("operator")
def resize(request: HttpRequest, name: str) -> HttpResponseBase:
    typed = request.POST.get("size_gib", "")
    try:
        size: Any = int(float(typed) * GIB)
    except (ValueError, OverflowError):
        size = typed
    try:
        actions.resize(_user(request), name, size)
    except Refused as error:
        messages.error(request, f"“{typed}” GiB was refused. {error}")
    else:
        messages.success(request, f"Cache tier {name} restarts with {typed} GiB.")
    return redirect("cachetier:tiers")


@require_POST
@role_required("operator")
def delete(request: HttpRequest, name: str) -> HttpResponseBase:
    try:
        actions.delete(_user(request), name)
    except Refused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Cache tier {name} is being deleted.")
    return redirect("cachetier:tiers")


def _user(request: HttpRequest) -> Any:
    return request.user
