"""Pages, JSON data and files of custom boards. Pages never wait for Prometheus."""

from __future__ import annotations

import hashlib
import json
import time
from uuid import UUID

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.cache import get_conditional_response
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from console.accounts.permissions import actor_of
from console.core.errors import Refused
from dashboards.boards.results import csv_export
from dashboards.custom_boards import measurement, query_panels, selectors
from dashboards.custom_boards import page as board_page
from dashboards.custom_boards.documents import PROMQL
from dashboards.custom_boards.models import CustomBoard
from dashboards.prometheus.sources import selectors as sources

_PAGE = 50


@require_safe
def board_list(request: HttpRequest) -> HttpResponse:
    """List the boards, the latest changed first."""
    listed = selectors.list_boards(request.user).order_by("-changed_at", "pk")
    page = Paginator(listed, _PAGE).get_page(request.GET.get("page"))
    rows = [
        {"board": board, "may_edit": selectors.may_edit(request.user, board)}
        for board in page.object_list
    ]
    return render(request, "dashboards/custom/list.html", {"rows": rows, "page": page})


@require_safe
def board(request: HttpRequest, board_id: UUID) -> HttpResponse:
    board = find_board(request, board_id)
    may_edit = selectors.may_edit(request.user, board)
    board_query, problems = board_page.parse_board_query(
        request.GET, time.time(), may_edit=may_edit
    )
    context = board_page.build_context(request.user, board, board_query, problems)
    return render(request, "dashboards/custom/board.html", context)


@gzip_page
@never_cache
@require_safe
def board_data(request: HttpRequest, board_id: UUID) -> HttpResponse:
    """Return the values that the viewer may see, in one response for all panels."""
    board = find_board(request, board_id)
    board_query, _ = board_page.parse_board_query(request.GET, time.time())
    panels = board_query.select(selectors.read_panels(request.user, board))
    body = json.dumps(measurement.measure_board(request.user, panels, board_query)).encode()
    response = HttpResponse(body, content_type="application/json")
    response["ETag"] = etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return get_conditional_response(request, etag=etag, response=response) or response


@never_cache
@require_safe
def query_csv(request: HttpRequest, board_id: UUID) -> HttpResponse:
    """Return the values of one PromQL panel; other panels have the CSV of their own board."""
    board = find_board(request, board_id)
    board_query, _ = board_page.parse_board_query(request.GET, time.time())
    panels = [
        panel
        for panel in board_query.select(selectors.read_panels(request.user, board))
        if panel.type == PROMQL and selectors.may_view_queries(request.user)
    ]
    if not panels or not board_query.panel:
        raise Http404(board_query.panel)
    queries = query_panels.measure_queries(
        sources.fleet(), panels, board_query, board_query.end(time.time())
    )
    filename = csv_export.make_filename(queries, slugify(board.title), "")
    response = HttpResponse(csv_export.format_csv(queries), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


@never_cache
@require_safe
def export(request: HttpRequest, board_id: UUID) -> HttpResponse:
    board = find_board(request, board_id)
    document = selectors.export(request.user, board)
    response = JsonResponse(document, json_dumps_params={"indent": 2, "ensure_ascii": False})
    filename = f"{slugify(board.title) or 'board'}.json"
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


def find_board(request: HttpRequest, board_id: UUID) -> CustomBoard:
    try:
        return selectors.get_board(actor_of(request), board_id)
    except Refused as refused:
        raise Http404(str(refused)) from refused
