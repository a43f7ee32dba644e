"""Pages of cluster alert objects: settings and status."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import require
from console.core.errors import Refused
from console.web import responses
from dashboards.alerts.cluster_objects import actions, selectors
from dashboards.alerts.cluster_objects.forms import ClusterAlertsForm


@never_cache
@require_safe
@role_required("viewer")
def index(request: HttpRequest) -> HttpResponse:
    context = {"rows": selectors.cluster_summaries()}
    return responses.render(
        request, "alert_objects/list.html", "alert_objects/htmx/list.html", context
    )


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@role_required("viewer")
def cluster(request: HttpRequest, name: str) -> HttpResponseBase:
    found = _found(name)
    posted = request.POST if request.method == "POST" else None
    form = ClusterAlertsForm(posted, found.row, found.cluster.namespace)
    status = 200
    if posted is not None:
        require(_user(request), "admin")
        try:
            actions.change(_user(request), name, form.typed())
        except Refused as refused:
            form.refuse(refused)
            status = refused.status_code
        else:
            messages.success(request, f"What is kept in {name} is set, and done now.")
            return redirect("alert_objects:cluster", name)
    context = {"row": found, "form": form}
    page, part = "alert_objects/cluster.html", "alert_objects/htmx/now.html"
    if posted is None:
        return responses.render(request, page, part, context)
    return render(request, page, context, status=status)


@require_POST
@role_required("operator")
def check(request: HttpRequest, name: str) -> HttpResponseBase:
    _found(name)
    actions.check(_user(request), name)
    messages.info(request, f"{name} is looked at now.")
    return redirect("alert_objects:cluster", name)


def _found(name: str) -> selectors.ClusterAlertsSummary:
    try:
        return selectors.one(name)
    except Refused as refused:
        raise Http404(str(refused)) from refused


def _user(request: HttpRequest) -> Any:
    return request.user
