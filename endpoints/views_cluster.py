"""Pages of what a cluster tells: drift with its two answers, and the logs of any container."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.permissions import role_required
from console.provisioners.base import ProvisionError
from endpoints import drift_actions, log_sources, log_stream
from endpoints.models import Endpoint
from endpoints.refusals import NotFoundError
from endpoints.views import done
from endpoints.views_detail import found

_EVENTS = "text/event-stream"


@require_POST
@role_required("operator")
def heal(request: HttpRequest, name: str) -> HttpResponseBase:
    workload = request.POST.get("workload", "")
    return done(
        request,
        found(name),
        lambda: drift_actions.heal(request.user, name, workload),
        f"{workload or name} is made as wanted again.",
    )


@require_POST
@role_required("operator")
def adopt(request: HttpRequest, name: str) -> HttpResponseBase:
    key = request.POST.get("key", "")
    return done(
        request,
        found(name),
        lambda: drift_actions.adopt(request.user, name, key),
        f"{key} is left as it was found.",
    )


@require_safe
@role_required("operator")
def logs(request: HttpRequest, name: str) -> HttpResponse:
    endpoint = found(name)
    at = _chosen(request, endpoint)
    groups: dict[str, list[log_sources.Container]] = {}
    for one in log_sources.containers(endpoint):
        groups.setdefault(one.replica, []).append(one)
    context: dict[str, Any] = {"endpoint": endpoint, "groups": groups, "chosen": at}
    return render(request, "endpoints/logs.html", context)


@require_safe
@role_required("operator")
def log_lines(request: HttpRequest, name: str) -> HttpResponseBase:
    """Server-sent events; a browser goes on after the last mark it got."""
    endpoint = found(name)
    at = _chosen(request, endpoint)
    if at is None:
        raise Http404(f"{name} has no container yet.")
    after = request.headers.get("Last-Event-ID", "") or request.GET.get("after", "")
    try:
        lines = partial(log_sources.source(endpoint, at).lines, after)
    except ProvisionError as error:
        return HttpResponse(log_stream.problem(error.message), content_type=_EVENTS)
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    stream = log_stream.stream(lines)
    return StreamingHttpResponse(stream, content_type=_EVENTS, headers=headers)


def _chosen(request: HttpRequest, endpoint: Endpoint) -> log_sources.Container | None:
    replica, container = request.GET.get("replica", ""), request.GET.get("container", "")
    try:
        return log_sources.chosen(endpoint, replica, container)
    except NotFoundError as error:
        raise Http404(str(error)) from None
