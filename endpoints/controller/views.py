"""Page of followed namespaces."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.gate import role_required
from console.clusters import selectors as clusters
from console.core.errors import Refused
from endpoints.controller import actions, selectors
from endpoints.refusals import RefusalError


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    context: dict[str, Any] = {
        "follows": selectors.visible_follows(request.user),
        "clusters": clusters.names(),
    }
    return render(request, "endpoints/followed.html", context)


@require_POST
@role_required("admin")
def add(request: HttpRequest) -> HttpResponseBase:
    cluster, namespace = request.POST.get("cluster", ""), request.POST.get("namespace", "").strip()
    try:
        made = actions.follow(request.user, cluster, namespace)
    except Refused as error:
        for item in error.errors:
            messages.error(request, f"{item.message} {item.remedy}")
    else:
        messages.success(request, f"Following {made}.")
    return redirect("endpoints:followed")


@require_POST
@role_required("admin")
def remove(request: HttpRequest, follow_id: str) -> HttpResponseBase:
    try:
        follow = actions.unfollow(request.user, follow_id)
    except RefusalError as error:
        messages.error(request, f"{error.message} {error.remedy}")
    else:
        messages.success(request, f"No longer following {follow}; its endpoints are kept.")
    return redirect("endpoints:followed")
