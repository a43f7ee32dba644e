"""Page of an endpoint's recorded traffic: switch, hours, export, imported traces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Problem, Refused
from dashboards.insight.traces import actions, storage
from dashboards.insight.traces.convert import MAX_FILE_BYTES, MAX_REQUESTS
from dashboards.insight.traces.downloads import export_response
from dashboards.insight.traces.formats import FORMATS
from dashboards.insight.traces.storage import RecordedHour
from endpoints import actions as endpoint_actions
from endpoints.models import Endpoint
from endpoints.pages.head import find_endpoint
from endpoints.pages.routing.views import build_shell

HOURS_A_PAGE = 48
_HOUR = timedelta(hours=1)
_OFFER_RECORDING = ("advisor:endpoint", "whatif:endpoint")  # pages with a button to start it


@dataclass(frozen=True, slots=True)
class HourRow:
    """Recorded hour of the traces page. `gap_hours`: hours without recorded requests before it."""

    hour: RecordedHour
    gap_hours: int


@require_safe
def show_traces(request: HttpRequest, name: str) -> HttpResponse:
    return _render(request, find_endpoint(name))


def _render(
    request: HttpRequest, found: Endpoint, problems: tuple[Problem, ...] = (), status: int = 200
) -> HttpResponse:
    hours = storage.recorded_hours(found)
    context: dict[str, Any] = {
        **build_shell(found),
        "routing": found.parsed.routing,
        "page": Paginator(_rows(hours), HOURS_A_PAGE).get_page(request.GET.get("page")),
        "hours": hours,
        "size": sum(hour.size for hour in hours),
        "requests": sum(hour.requests for hour in hours),
        "lost": sum(hour.lost for hour in hours),
        "sources": list(storage.sources(found)),
        "imports": list(storage.imported_traces(found)),
        "formats": FORMATS,
        "typed": request.POST or request.GET,
        "problems": problems,
        "max_mib": MAX_FILE_BYTES >> 20,
        "max_requests": MAX_REQUESTS,
    }
    return render(request, "traces/endpoint.html", context, status=status)


def _rows(hours: list[RecordedHour]) -> list[HourRow]:
    befores = [*(hour.hour for hour in hours[1:]), None]
    return [
        HourRow(hour, 0 if before is None else (hour.hour - before) // _HOUR - 1)
        for hour, before in zip(hours, befores, strict=False)
    ]


@require_POST
@role_required("operator")
def switch(request: HttpRequest, name: str) -> HttpResponseBase:
    endpoint = find_endpoint(name)
    recording = request.POST.get("record") == "on"
    try:
        endpoint_actions.patch(
            request.user, endpoint.name, {"routing": {"record_traffic": recording}}
        )
    except Refused as refused:
        return _render(request, endpoint, refused.errors, refused.status_code)
    done = "Recording starts" if recording else "Recording ends"
    messages.success(request, f"{done} when the routers have reloaded, in some seconds.")
    back = request.POST.get("back", "")
    return redirect(back if back in _OFFER_RECORDING else "traces:endpoint", endpoint.name)


@require_safe
@role_required("operator")
def export(request: HttpRequest, name: str) -> HttpResponseBase:
    """Download recorded hours from `first` to `last`, or the imported trace `name`."""
    endpoint = find_endpoint(name)
    last = _time(request.GET.get("last", ""))
    size = request.GET.get("block_tokens", "")
    query = {
        "name": request.GET.get("name", ""),
        "begin": _time(request.GET.get("first", "")),
        "end": last + _HOUR if last else None,
        "trace_format": request.GET.get("trace_format", ""),
        "block_tokens": int(size) if size.isdecimal() and len(size) < 9 else 0,
    }
    try:
        return export_response(request.user, endpoint.name, query)
    except Refused as refused:
        return _render(request, endpoint, refused.errors, refused.status_code)


def _time(text: str) -> datetime | None:
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


@require_POST
@role_required("operator")
def import_file(request: HttpRequest, name: str) -> HttpResponseBase:
    endpoint = find_endpoint(name)
    file = request.FILES.get("file")
    size = request.POST.get("block_tokens", "")
    try:
        row = actions.import_trace(
            request.user,
            endpoint.name,
            request.POST.get("name", "").strip(),
            request.POST.get("trace_format", ""),
            file.read(MAX_FILE_BYTES + 1) if file is not None else b"",
            int(size) if size.isdecimal() and len(size) < 9 else 0,
        )
    except Refused as refused:
        return _render(request, endpoint, refused.errors, refused.status_code)
    messages.success(request, f"Trace {row.name} imported. Requests: {row.requests}.")
    return redirect("traces:endpoint", endpoint.name)


@require_POST
@role_required("operator")
def delete(request: HttpRequest, name: str) -> HttpResponseBase:
    """Delete the imported trace `trace`, or the recorded hour `hour`."""
    endpoint = find_endpoint(name)
    trace, hour = request.POST.get("trace", ""), _time(request.POST.get("hour", ""))
    try:
        if hour is not None:
            actions.delete_hours(request.user, endpoint.name, hour, hour + _HOUR)
            messages.success(request, "The recorded hour was deleted.")
        else:
            actions.delete_imported(request.user, endpoint.name, trace)
            messages.success(request, f"Trace {trace} was deleted.")
    except Refused as refused:
        return _render(request, endpoint, refused.errors, refused.status_code)
    return redirect("traces:endpoint", endpoint.name)
