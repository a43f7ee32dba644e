"""/api/v1/custom-boards/: boards of users and teams, and their export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.resources.rest import Resource
from dashboards.custom_boards import actions, selectors
from dashboards.custom_boards.documents import BoardDocumentSerializer
from dashboards.custom_boards.models import CustomBoard
from endpoints import teams

_READ_ONLY = ("id", "may_edit", "url", "generation", "changed_at")


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

    def to_representation(self, board: CustomBoard) -> dict[str, Any]:
        viewer = actor_of(self.context["request"])
        return {
            "id": str(board.pk),
            "owner": board.owner,
            "shared": board.shared,
            "may_edit": selectors.may_edit(viewer, board),
            "url": board.get_absolute_url(),
            "generation": board.generation,
            "changed_at": board.changed_at,
            **selectors.export(viewer, board, self.context["endpoints"]),
        }


def _split(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the document, and the fields that are no part of it. What a read added is ignored."""
    document = {name: value for name, value in data.items() if name not in _READ_ONLY}
    fields: dict[str, Any] = {}
    for name in ("owner", "shared"):
        if name in document:
            fields[name] = document.pop(name)
    return document, fields


def _create(actor: Any, data: Mapping[str, Any]) -> CustomBoard:
    document, fields = _split(data)
    return actions.create(actor, document, **fields)


def _replace(actor: Any, board_id: UUID, data: Mapping[str, Any], **expected: Any) -> CustomBoard:
    document, fields = _split(data)
    return actions.replace_board(actor, board_id, document, **fields, **expected)


BOARDS = Resource(
    path="custom-boards",
    key="uuid:board_id",
    noun="custom board",
    tag="custom boards",
    about={
        "list": "Your own and those of your teams. Panels that you may not see are of type "
        "`hidden`.",
        "read": "Also one that is shared with you by its link.",
        "create": "Takes an export as it is. PromQL panels need the operator role for all "
        "endpoints.",
        "change": "Title and panels are replaced; `owner` and `shared` keep their values if "
        "omitted. A panel\nof type `hidden` keeps its content.",
    },
    document=CustomBoardSerializer,
    new=CustomBoardWriteSerializer,
    changed=CustomBoardWriteSerializer,
    rows=selectors.list_boards,
    find=selectors.get_board,
    context=lambda viewer: {"endpoints": teams.names(viewer)},
    create=_create,
    change=_replace,
    delete=actions.delete,
    replaces=True,
    view={"write_somewhere": True},
)


class ExportView(APIView):
    @extend_schema(
        tags=["custom boards"], summary="Export a custom board", responses=BoardDocumentSerializer
    )
    def get(self, request: Request, board_id: UUID) -> Response:
        """Returns title and panels only; create a board from it on any console."""
        board = selectors.get_board(actor_of(request), board_id)
        return Response(selectors.export(actor_of(request), board))
