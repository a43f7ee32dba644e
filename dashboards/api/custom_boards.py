"""/api/v1/custom-boards/: boards of users and teams, and their export."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.idempotency import idempotent
from console.api.parameters import IF_MATCH
from console.api.preconditions import expected_generation, with_generation
from console.api.serializers import ErrorSerializer
from console.core.errors import expect_object
from dashboards.custom_boards import actions, selectors
from dashboards.custom_boards.documents import (
    FORMAT,
    HIDDEN,
    MAX_PANELS,
    MAX_TITLE,
    PANEL,
    PROMQL,
    UNITS,
    VERSION,
    WIDTHS,
)
from dashboards.custom_boards.models import CustomBoard
from endpoints import teams

_described = partial(extend_schema, tags=["custom boards"])
_READ_ONLY = ("id", "may_edit", "url", "generation", "changed_at")
_REFUSED = {400: ErrorSerializer, 403: ErrorSerializer, 404: ErrorSerializer, 409: ErrorSerializer}


class CustomPanelSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(required=False, help_text="Unique in the board; default: chosen.")
    type = serializers.ChoiceField(
        choices=(PANEL, PROMQL, HIDDEN),
        help_text="Panel of a built-in board, query, or content that you may not see.",
    )
    title = serializers.CharField(
        required=False, allow_blank=True, help_text='"": title of the built-in panel.'
    )
    width = serializers.ChoiceField(choices=WIDTHS, required=False, help_text="Default: half.")
    board = serializers.CharField(required=False, help_text="Key of the built-in board.")
    panel = serializers.CharField(required=False, help_text="Id of the built-in panel.")
    endpoint = serializers.CharField(
        required=False, allow_blank=True, help_text='"": all endpoints the viewer may see.'
    )
    worker = serializers.CharField(
        required=False, allow_blank=True, help_text="One worker of the endpoint."
    )
    query = serializers.CharField(required=False, help_text="PromQL.")
    unit = serializers.ChoiceField(choices=UNITS, required=False, help_text="Unit of the query.")
    legend = serializers.CharField(
        required=False, allow_blank=True, help_text="Series name, such as {{pod}}."
    )


class BoardDocumentSerializer(serializers.Serializer[Any]):
    format = serializers.ChoiceField(choices=(FORMAT,), required=False)
    version = serializers.IntegerField(
        min_value=VERSION, max_value=VERSION, help_text="Version of the format."
    )
    title = serializers.CharField(max_length=MAX_TITLE)
    panels = CustomPanelSerializer(
        many=True, required=False, help_text=f"In order, at most {MAX_PANELS}."
    )


class CustomBoardWriteSerializer(BoardDocumentSerializer):
    owner = serializers.CharField(
        required=False, help_text="user/NAME, team/SLUG or console; default: the caller."
    )
    shared = serializers.BooleanField(
        required=False, help_text="Every user with a role may view it by its link."
    )


class CustomBoardSerializer(BoardDocumentSerializer):
    id = serializers.UUIDField()
    owner = serializers.CharField(help_text="user/NAME, team/SLUG or console.")
    shared = serializers.BooleanField()
    may_edit = serializers.BooleanField(help_text="Whether the caller may change it.")
    url = serializers.CharField(help_text="Path of its page.")
    generation = serializers.IntegerField()
    changed_at = serializers.DateTimeField()


class CustomBoards(GenericAPIView[CustomBoard]):
    write_somewhere = True
    serializer_class = CustomBoardSerializer

    def get_queryset(self) -> QuerySet[CustomBoard]:
        return selectors.list_boards(self.request.user)

    @_described(summary="List custom boards", responses=CustomBoardSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Your own and those of your teams. Panels that you may not see are of type `hidden`."""
        page = self.paginate_queryset(self.get_queryset()) or []
        team_names = teams.names(request.user)
        return self.get_paginated_response(
            [_represent(request, board, team_names) for board in page]
        )

    @_described(
        summary="Create a custom board",
        request=CustomBoardWriteSerializer,
        responses={201: CustomBoardSerializer, **_REFUSED},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Takes an export as it is. PromQL panels need the operator role for all endpoints."""
        document, fields = _split(request)
        made = actions.create(actor_of(request), document, **fields)
        return with_generation(Response(_represent(request, made), status=201), made.generation)


@_described()
class CustomBoardView(APIView):
    write_somewhere = True

    @extend_schema(
        summary="Read a custom board", responses={200: CustomBoardSerializer, 404: ErrorSerializer}
    )
    def get(self, request: Request, board_id: UUID) -> Response:
        """Also one that is shared with you by its link."""
        board = selectors.get_board(actor_of(request), board_id)
        return with_generation(Response(_represent(request, board)), board.generation)

    @extend_schema(
        summary="Replace a custom board",
        parameters=[IF_MATCH],
        request=CustomBoardWriteSerializer,
        responses={200: CustomBoardSerializer, **_REFUSED},
    )
    def put(self, request: Request, board_id: UUID) -> Response:
        """Title and panels are replaced; `owner` and `shared` keep their values if omitted. A panel
        of type `hidden` keeps its content.
        """
        document, fields = _split(request)
        board = actions.replace_board(
            actor_of(request),
            board_id,
            document,
            **fields,
            expected_generation=expected_generation(request),
        )
        return with_generation(Response(_represent(request, board)), board.generation)

    @extend_schema(
        summary="Delete a custom board",
        parameters=[IF_MATCH],
        responses={204: None, 403: ErrorSerializer, 404: ErrorSerializer},
    )
    def delete(self, request: Request, board_id: UUID) -> Response:
        expected = expected_generation(request)
        actions.delete(actor_of(request), board_id, expected_generation=expected)
        return Response(status=204)


class ExportView(APIView):
    @_described(
        summary="Export a custom board",
        responses={200: BoardDocumentSerializer, 404: ErrorSerializer},
    )
    def get(self, request: Request, board_id: UUID) -> Response:
        """Returns title and panels only; create a board from it on any console."""
        board = selectors.get_board(actor_of(request), board_id)
        return Response(selectors.export(actor_of(request), board))


def _represent(
    request: Request, board: CustomBoard, endpoints: Collection[str] | None = None
) -> dict[str, Any]:
    viewer = actor_of(request)
    return {
        "id": str(board.pk),
        "owner": board.owner,
        "shared": board.shared,
        "may_edit": selectors.may_edit(viewer, board),
        "url": board.get_absolute_url(),
        "generation": board.generation,
        "changed_at": board.changed_at,
        **selectors.export(viewer, board, endpoints),
    }


def _split(request: Request) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the document, and the fields that are no part of it. What a read added is ignored."""
    data = dict(expect_object(request.data))
    document = {name: value for name, value in data.items() if name not in _READ_ONLY}
    fields: dict[str, Any] = {}
    for name in ("owner", "shared"):
        if name in document:
            fields[name] = document.pop(name)
    return document, fields
