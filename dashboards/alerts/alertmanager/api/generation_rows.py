"""REST views of platform rows that have a generation: list and detail.

All kinds share the rules: read with a role on the whole platform, written by admins, changed and
deleted only with the current generation, if one is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of, require
from console.api.idempotency import idempotent
from console.api.parameters import IF_MATCH
from console.api.preconditions import expected_generation, with_generation
from dashboards.alerts.openapi import answers, described

View = TypeVar("View", bound=type[APIView])
_ADMIN = "Needs the admin role."


@dataclass(frozen=True, slots=True)
class GenerationRowKind:
    """Kind of row: `verbs` holds create, change and delete; the texts are for the OpenAPI
    document."""

    one: str
    many: str
    shown: Any
    new: Any
    change: Any
    verbs: Any
    find: Callable[[Any], Any]
    find_all: Callable[[], QuerySet[Any]]
    document: Callable[[Any], dict[str, Any]]
    order: str
    added: str = ""
    removed: str = ""
    not_added: tuple[int, ...] = (400,)

    def rows(self, view: View) -> View:
        return extend_schema_view(
            get=described(
                summary=f"List {self.many}", description=self.order, responses=self.shown(many=True)
            ),
            post=described(
                summary=f"Add {self.one}",
                description=f"{_ADMIN} {self.added}".strip(),
                request=self.new,
                responses=answers(self.shown, *self.not_added, status=201),
            ),
        )(view)

    def row(self, view: View) -> View:
        return extend_schema_view(
            get=described(summary=f"Read {self.one}", responses=answers(self.shown, 404)),
            patch=described(
                summary=f"Change {self.one}",
                description=f"{_ADMIN} Omitted fields keep their values.",
                parameters=[IF_MATCH],
                request=self.change,
                responses=answers(self.shown, 404, 400),
            ),
            delete=described(
                summary=f"Remove {self.one}",
                description=f"{_ADMIN} {self.removed}".strip(),
                parameters=[IF_MATCH],
                responses=answers(None, 404, status=204),
            ),
        )(view)


# No docstrings below: they would appear in the OpenAPI document.
class GenerationRowListView(GenericAPIView[Any]):
    write_role = "admin"
    kind: GenerationRowKind

    def get_queryset(self) -> QuerySet[Any]:
        return self.kind.find_all()

    def get(self, request: Request) -> Response:
        require(actor_of(request), "viewer")
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response([self.kind.document(row) for row in page])

    @idempotent
    def post(self, request: Request) -> Response:
        made = self.kind.verbs.create(request.user, request.data)
        return _answer(self.kind, made, 201)


class GenerationRowView(APIView):
    write_role = "admin"
    kind: GenerationRowKind

    # `named`: the URL identifies the row by one segment, whatever its field is called.
    def get(self, request: Request, **named: Any) -> Response:
        require(actor_of(request), "viewer")
        return _answer(self.kind, self.kind.find(*named.values()))

    def patch(self, request: Request, **named: Any) -> Response:
        words = *named.values(), request.data
        changed = self.kind.verbs.change(
            request.user, *words, expected=expected_generation(request)
        )
        return _answer(self.kind, changed)

    def delete(self, request: Request, **named: Any) -> Response:
        self.kind.verbs.delete(request.user, *named.values(), expected=expected_generation(request))
        return Response(status=204)


def _answer(kind: GenerationRowKind, row: Any, status: int = 200) -> Response:
    return with_generation(Response(kind.document(row), status=status), row.generation)
