"""/api/v1/boards/: boards, and the values of one for the fleet or an endpoint."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.serializers import ErrorSerializer
from console.core.errors import Problem, Refused
from dashboards import selectors as dashboards_selectors
from dashboards.boards import answers
from dashboards.boards.answers import BoardLocation, BoardQuery
from dashboards.boards.charts.figure import StyledSeries
from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.declarations import DEFAULT_RANGE, RANGES, Panel
from dashboards.boards.queries import Scope
from dashboards.boards.results.board import PanelResult
from endpoints import selectors

_described = partial(extend_schema, tags=["boards"])
_MOMENT = {"type": "integer", "minimum": 0, "maximum": 2**40}
_PARAMETERS = [
    OpenApiParameter("board", str, OpenApiParameter.PATH, enum=list(BOARDS)),
    OpenApiParameter("endpoint", str, description="Endpoint name; default: all visible endpoints."),
    OpenApiParameter("worker", str, description="Only this worker of the endpoint."),
    OpenApiParameter("panel", str, description="Only this panel."),
    OpenApiParameter("range", str, enum=list(RANGES), default=DEFAULT_RANGE.key),
    OpenApiParameter("from", _MOMENT, description="Fixed start instead of a range: epoch seconds."),
    OpenApiParameter("to", _MOMENT, description="Default: now."),
    OpenApiParameter(
        "compare", str, enum=[answers.PREVIOUS], description="Include the previous period."
    ),
]


class PanelSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    title = serializers.CharField()
    about = serializers.CharField()
    unit = serializers.CharField(help_text="Unit of the values: seconds, share (0 to 1), per_s, …")
    kind = serializers.CharField(help_text="Chart kind.")
    needs = serializers.CharField(help_text='Required exporter; "" for the console\'s own metrics.')
    metrics = serializers.ListField(child=serializers.CharField(), help_text="Its metrics.")


class BoardSerializer(serializers.Serializer[Any]):
    key = serializers.CharField()
    title = serializers.CharField()
    about = serializers.CharField()
    fleet = PanelSerializer(many=True, help_text="Panels of the fleet board; may be empty.")
    endpoint = PanelSerializer(many=True, help_text="Panels of the endpoint board; may be empty.")


class BoardLineSerializer(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="Name in the data, e.g. the value of a label.")
    name = serializers.CharField(help_text="Display name.")
    values = serializers.ListField(
        child=serializers.FloatField(allow_null=True),
        help_text="At `window.start` and every `window.step` after it; null: not measured.",
    )


class MessageSerializer(serializers.Serializer[Any]):
    level = serializers.CharField()
    title = serializers.CharField()
    text = serializers.CharField()
    fix = serializers.CharField(help_text="Remedy.")


class PanelNumbersSerializer(PanelSerializer):
    state = serializers.CharField(help_text="ok, zero, quiet, stale, not_scraped, absent, …")
    message = MessageSerializer(allow_null=True, help_text="Reason for missing or stale values.")
    lines = BoardLineSerializer(many=True)
    before = BoardLineSerializer(many=True, help_text="Previous period, with `compare=previous`.")


class WindowSerializer(serializers.Serializer[Any]):
    start = serializers.IntegerField()
    end = serializers.IntegerField()
    step = serializers.IntegerField()


class NumbersSerializer(serializers.Serializer[Any]):
    board = serializers.CharField()
    endpoint = serializers.CharField(help_text='"": all visible endpoints.')
    window = WindowSerializer()
    scraped = serializers.CharField(help_text="Targets up and known.")
    first_data = serializers.IntegerField(
        allow_null=True,
        help_text="Epoch seconds of the earliest values if the range begins well before them.",
    )
    fault = MessageSerializer(allow_null=True, help_text="Prometheus error, if any.")
    panels = PanelNumbersSerializer(many=True)
    notes = serializers.ListField(
        child=serializers.DictField(), help_text="Annotations, latest first."
    )
    notes_left_out = serializers.IntegerField()


class Boards(GenericAPIView[Any]):
    serializer_class = BoardSerializer

    @_described(summary="List boards", responses=BoardSerializer(many=True))
    def get(self, _request: Request) -> Response:
        """Lists each panel's metrics and unit; values are in the board itself."""
        boards = [
            {
                "key": board.key,
                "title": board.title,
                "about": board.about,
                "fleet": [_panel(panel) for panel in board.panels(one=False)],
                "endpoint": [_panel(panel) for panel in board.panels(one=True)],
            }
            for board in BOARDS.values()
        ]
        return self.get_paginated_response(self.paginate_queryset(boards) or [])


class BoardView(APIView):
    @_described(
        summary="Read the values of a board",
        parameters=_PARAMETERS,
        responses={200: NumbersSerializer, 400: ErrorSerializer, 404: ErrorSerializer},
    )
    def get(self, request: Request, board: str) -> Response:
        """Unformatted values, at most 600 per line. An unreachable Prometheus is not an error:
        `fault` describes it.
        """
        parameters = request.query_params
        chosen, problems = answers.parse_query(parameters, time.time())
        place = BoardLocation(BOARDS[board], parameters.get("endpoint", ""))
        problems += _find_problems(place, chosen)
        if place.endpoint:
            selectors.get(place.endpoint, viewer=request.user)
        if problems:
            raise Refused(*problems)
        scope = Scope(place.endpoint, selectors.NAMESPACE)
        whose = scope if place.endpoint else dashboards_selectors.get_fleet_scope(request.user)
        measured = answers.measure(request.user, place, chosen, whose)
        notes = answers.list_annotations(request.user, place, chosen, whose, measured.window)
        return Response(
            {
                "board": board,
                "endpoint": place.endpoint,
                "window": asdict(measured.window),
                "scraped": measured.scraped,
                "first_data": measured.first_data,
                "fault": asdict(measured.fault) if measured.fault else None,
                "panels": [_panel_numbers(panel) for panel in measured.panels],
                **notes,
            }
        )


def _find_problems(place: BoardLocation, chosen: BoardQuery) -> tuple[Problem, ...]:
    wrong = []
    if chosen.worker and not place.endpoint:
        text, remedy = "A worker requires its endpoint.", "Set the parameter endpoint, too."
        wrong.append(Problem("worker", chosen.worker, text, remedy, "invalid"))
    if not place.panels:
        text = "This board requires an endpoint."
        remedy = "Set the parameter endpoint."
        if place.endpoint:
            text, remedy = "This board covers all endpoints.", "Omit the parameter endpoint."
        wrong.append(Problem("endpoint", place.endpoint, text, remedy, "invalid"))
    elif not place.shown(chosen):
        names = ", ".join(panel.id for panel in place.panels)
        text = f'This board has no panel "{chosen.panel}".'
        wrong.append(Problem("panel", chosen.panel, text, f"Choose one of {names}.", "invalid"))
    return tuple(wrong)


def _panel(panel: Panel) -> dict[str, Any]:
    names = ("id", "title", "about", "unit", "kind", "needs")
    return {name: getattr(panel, name) for name in names} | {"metrics": list(panel.metrics)}


def _panel_numbers(shown: PanelResult) -> dict[str, Any]:
    return {
        **_panel(shown.panel),
        "state": shown.state,
        "message": asdict(shown.message) if shown.message else None,
        "lines": [_line(item) for item in shown.drawn],
        "before": [_line(item) for item in shown.before],
    }


def _line(item: StyledSeries) -> dict[str, Any]:
    return {"key": item.key, "name": item.style.label, "values": item.values}
