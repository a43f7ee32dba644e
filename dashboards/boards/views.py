"""Pages, JSON data and CSV of boards. Pages never wait for Prometheus."""

from __future__ import annotations

import time
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import get_conditional_response
from django.views.decorators.cache import never_cache
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from dashboards import selectors as dashboards_selectors
from dashboards.boards import answers, page
from dashboards.boards.answers import BoardLocation
from dashboards.boards.panels import BOARDS, FIRST
from dashboards.boards.queries import Scope
from dashboards.boards.results import csv_export
from endpoints import selectors
from endpoints.refusals import NotFoundError


@require_safe
def fleet(request: HttpRequest, board: str = FIRST) -> HttpResponse:
    names = selectors.endpoints(request.user).values_list("name", flat=True)
    context = _build_context(request, _locate(board))
    return render(request, "dashboards/fleet.html", context | {"names": list(names)})


@require_safe
def endpoint(request: HttpRequest, name: str, board: str = FIRST) -> HttpResponse:
    try:
        shown = selectors.get(name)
    except NotFoundError as error:
        raise Http404(name) from error
    workers = selectors.workers(shown).values_list("name", flat=True)
    context = _build_context(request, _locate(board, name), tuple(workers))
    return render(request, "dashboards/endpoint.html", context | {"endpoint": shown})


@gzip_page
@never_cache
@require_safe
def board_data(request: HttpRequest, name: str = "", board: str = FIRST) -> HttpResponse:
    """Return the board of the named endpoint, or of all endpoints visible to the user."""
    chosen, _ = answers.parse_query(request.GET, time.time())
    found = answers.respond(request.user, _locate(board, name), chosen, _get_scope(request, name))
    response = HttpResponse(found.body, content_type="application/json")
    response["ETag"] = found.etag
    return get_conditional_response(request, etag=found.etag, response=response) or response


@never_cache
@require_safe
def board_csv(request: HttpRequest, name: str = "", board: str = FIRST) -> HttpResponse:
    place, (chosen, _) = _locate(board, name), answers.parse_query(request.GET, time.time())
    found = answers.measure(request.user, place, chosen, _get_scope(request, name))
    filename = csv_export.make_filename(found, board, name)
    response = HttpResponse(csv_export.format_csv(found), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


def _build_context(
    request: HttpRequest, place: BoardLocation, workers: tuple[str, ...] = ()
) -> dict[str, Any]:
    chosen, problems = answers.parse_query(request.GET, time.time())
    return page.build_context(place, chosen, problems, workers)


def _get_scope(request: HttpRequest, name: str) -> Scope:
    if not name:
        return dashboards_selectors.get_fleet_scope(request.user)
    if not selectors.endpoints().filter(name=name).exists():
        raise Http404(name)
    return Scope(name, selectors.NAMESPACE)


def _locate(key: str, endpoint: str = "") -> BoardLocation:
    place = BoardLocation(BOARDS[key], endpoint)
    if not place.panels:
        raise Http404(key)
    return place
