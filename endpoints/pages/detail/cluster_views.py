"""Drift and log pages of an endpoint on a cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.provisioners.base import ProvisionError
from endpoints import abandonment, drift_actions
from endpoints.logs import sources
from endpoints.logs import stream as logs_stream
from endpoints.models import Endpoint
from endpoints.pages.detail.views import run_and_redirect
from endpoints.pages.head import find_endpoint
from endpoints.refusals import NotFoundError


@require_POST
@role_required("operator")
def heal(request: HttpRequest, name: str) -> HttpResponseBase:
    workload = request.POST.get("workload", "")
    text = f"{workload or name}: restoring the configuration."
    return run_and_redirect(request, name, text, drift_actions.heal, workload)


@require_POST
@role_required("operator")
def adopt(request: HttpRequest, name: str) -> HttpResponseBase:
    key = request.POST.get("key", "")
    text = f"{key}: keeping the observed value."
    return run_and_redirect(request, name, text, drift_actions.adopt, key)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def abandon(request: HttpRequest, name: str) -> HttpResponseBase:
    """Abandon the endpoint from its deletion page; the name must be typed here, too."""
    endpoint = find_endpoint(name)
    if request.method != "POST":
        return redirect("endpoints:delete", name)
    typed = request.POST.get("name", "").strip()
    error, status = f"“{typed}” does not match. Type {name} to abandon it.", 400
    if typed == name:
        try:
            left = abandonment.abandon(request.user, name)
        except Refused as refused:
            error = " ".join(f"{item.message} {item.remedy}" for item in refused.errors)
            status = refused.status_code
        else:
            messages.warning(request, f"{name} was abandoned. {left.message}")
            return redirect("endpoints:list")
    context: dict[str, Any] = {"endpoint": endpoint, "given_up": typed, "not_given_up": error}
    if endpoint.parsed.on_cluster:
        context["left"] = abandonment.remaining_objects(endpoint)
    return render(request, "endpoints/delete.html", context, status=status)


@require_safe
@role_required("operator")
def logs(request: HttpRequest, name: str) -> HttpResponse:
    endpoint = find_endpoint(name)
    log_source = _choose_container(request, endpoint)
    groups: dict[str, list[sources.Container]] = {}
    for container in sources.containers(endpoint):
        groups.setdefault(container.replica, []).append(container)
    context: dict[str, Any] = {"endpoint": endpoint, "groups": groups, "chosen": log_source}
    return render(request, "endpoints/logs.html", context)


@require_safe
@role_required("operator")
def log_lines(request: HttpRequest, name: str) -> HttpResponseBase:
    """Stream server-sent events; browsers resume after the last event id."""
    endpoint = find_endpoint(name)
    log_source = _choose_container(request, endpoint)
    if log_source is None:
        raise Http404(f"{name} has no containers yet.")
    after = request.headers.get("Last-Event-ID", "") or request.GET.get("after", "")
    try:
        lines = partial(sources.log_source(endpoint, log_source).lines, after)
    except ProvisionError as error:
        return HttpResponse(
            logs_stream.problem(error.message), content_type=logs_stream.CONTENT_TYPE
        )
    return logs_stream.response(logs_stream.stream(lines))


def _choose_container(request: HttpRequest, endpoint: Endpoint) -> sources.Container | None:
    replica, container = request.GET.get("replica", ""), request.GET.get("container", "")
    try:
        return sources.choose_container(endpoint, replica, container)
    except NotFoundError as error:
        raise Http404(str(error)) from None
