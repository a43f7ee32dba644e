"""/api/v1/tokens/: the caller's API tokens; all tokens for an admin."""

from __future__ import annotations

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts import selectors
from console.accounts.models import ApiToken, User
from console.accounts.permissions import actor_of, allows
from console.api.bodies import read_body
from console.api.idempotency import idempotent
from console.api.parameters import IF_MATCH, Filter
from console.api.preconditions import require_match
from console.core.errors import Problem, Refused
from console.people import token_actions
from console.people.api.serializers import MadeTokenSerializer, NewTokenSerializer, TokenSerializer

_TAGS = ["access"]


@extend_schema_view(
    get=extend_schema(
        tags=_TAGS, summary="List API tokens", description="Clear-text tokens are not included."
    )
)
class TokenListView(ListAPIView[ApiToken]):
    write_role = "viewer"
    write_somewhere = True
    serializer_class = TokenSerializer
    list_order = ("-created_at", "-pk")
    filters = (
        Filter("user", "user__username", "Name of the owner."),
        Filter("team", "team__slug", "Slug of the only allowed team."),
    )

    def get_queryset(self) -> QuerySet[ApiToken]:
        return _visible_tokens(self.request)

    @extend_schema(
        tags=_TAGS,
        summary="Create an API token",
        request=NewTokenSerializer,
        responses={201: MadeTokenSerializer},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """A token cannot exceed the rights and lifetime of the credentials that create it."""
        data = read_body(NewTokenSerializer, request.data)
        made, clear = token_actions.create_token(
            actor_of(request),
            data["name"],
            data["role"],
            data.get("days"),
            data.get("team") or "",
            _owner(request, data.get("user", "")),
        )
        answer = {**TokenSerializer(made).data, "token": clear}
        return Response(answer, status=201, headers={"Cache-Control": "no-store"})


class TokenView(GenericAPIView[ApiToken]):
    write_role = "viewer"
    write_somewhere = True
    serializer_class = TokenSerializer

    @extend_schema(tags=_TAGS, summary="Read a token")
    def get(self, request: Request, pk: int) -> Response:
        return Response(TokenSerializer(_find_token(request, pk)).data)

    @extend_schema(tags=_TAGS, summary="Revoke a token", parameters=[IF_MATCH])
    def delete(self, request: Request, pk: int) -> Response:
        """An admin may revoke any token, other users their own. Programs using it lose access at
        once.
        """
        token = _find_token(request, pk)
        rows = ApiToken.objects.filter(pk=pk)
        with require_match(request, rows, lambda: TokenSerializer(_find_token(request, pk)).data):
            token_actions.revoke_token(actor_of(request), token)
        return Response(status=204)


def _visible_tokens(request: Request) -> QuerySet[ApiToken]:
    rows = selectors.list_all_tokens()
    if allows(request.user, "admin"):
        return rows
    rows = rows.filter(user=request.user.pk)
    # A token limited to one team cannot access the user's other tokens.
    cap = request.user.team_cap if isinstance(request.user, User) else None
    return rows.filter(team=cap) if cap is not None else rows


def _find_token(request: Request, pk: int) -> ApiToken:
    return get_object_or_404(_visible_tokens(request), pk=pk)


def _owner(request: Request, name: str) -> User | None:
    """Return the named owner for commands on the server, else None for the caller."""
    if request.user.pk is not None:
        if name not in ("", request.user.get_username()):
            message = "Users create tokens for themselves only."
            raise Refused(Problem("user", name, message, "Omit the field.", "not_yours"))
        return None
    owner = selectors.list_users().filter(username=name).first()
    if owner is None:
        message = f"User {name} does not exist."
        raise Refused(Problem("user", name, message, "Use an existing user name.", "unknown_user"))
    return owner
