"""Pages of boards. They never wait for Prometheus."""

from __future__ import annotations

import time
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.accounts.permissions import allows
from dashboards.boards import answers, page
from dashboards.boards.answers import BoardLocation
from dashboards.boards.panels import FIRST
from endpoints import selectors
from endpoints.refusals import NotFoundError


@require_safe
def fleet(request: HttpRequest, board: str = FIRST) -> HttpResponse:
    names = selectors.endpoints(request.user).values_list("name", flat=True)
    context = _build_context(request, answers.locate(board))
    return render(request, "dashboards/fleet.html", context | {"names": list(names)})


@require_safe
def endpoint(request: HttpRequest, name: str, board: str = FIRST) -> HttpResponse:
    try:
        row = selectors.get(name)
    except NotFoundError as error:
        raise Http404(name) from error
    workers = selectors.workers(row).values_list("name", flat=True)
    context = _build_context(request, answers.locate(board, name), tuple(workers))
    return render(request, "dashboards/endpoint.html", context | {"endpoint": row})


def _build_context(
    request: HttpRequest, place: BoardLocation, workers: tuple[str, ...] = ()
) -> dict[str, Any]:
    chosen, problems = answers.parse_query(request.GET, time.time())
    context = page.build_context(place, chosen, problems, workers)
    return context | {"may_create_rules": allows(request.user, "operator")}
