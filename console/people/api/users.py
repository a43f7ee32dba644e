"""/api/v1/users/: users and their roles. Requires the admin role."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Q, QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from console.accounts import selectors
from console.accounts.models import Role, User
from console.accounts.permissions import actor_of
from console.api.bodies import read_body
from console.api.idempotency import idempotent
from console.api.parameters import IF_MATCH, Filter
from console.api.preconditions import require_match
from console.people import actions
from console.people.api.serializers import (
    MadeUserSerializer,
    NewUserSerializer,
    PasswordSerializer,
    UserChangeSerializer,
    UserSerializer,
)

_TAGS = ["access"]
_PASSWORD_ONCE = {"Cache-Control": "no-store"}


@extend_schema_view(get=extend_schema(tags=_TAGS, summary="List users"))
class UserListView(ListAPIView[User]):
    read_role = write_role = "admin"
    serializer_class = UserSerializer
    list_order = ("username",)
    filters = (
        Filter(
            "q", ("username__icontains", "email__icontains"), "Part of user name or e-mail address."
        ),
        Filter("role", "role", "Console role.", choices=Role.values),
        Filter("team", "memberships__team__slug", "Slug of a team the user is a member of."),
        Filter(
            "active",
            lambda value: Q(is_active=value == "true"),
            "true: active users, false: deactivated users.",
            kind="boolean",
        ),
    )

    def get_queryset(self) -> QuerySet[User]:
        return selectors.list_users()

    @extend_schema(
        tags=_TAGS,
        summary="Create a user",
        request=NewUserSerializer,
        responses={201: MadeUserSerializer},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """The password is returned in this response only."""
        data = read_body(NewUserSerializer, request.data)
        user, password = actions.create_user(actor_of(request), data["username"], data["role"])
        answer = {**UserSerializer(_find_user(user.username)).data, "password": password}
        return Response(answer, status=201, headers=_PASSWORD_ONCE)


class UserView(GenericAPIView[User]):
    read_role = write_role = "admin"
    serializer_class = UserSerializer

    @extend_schema(tags=_TAGS, summary="Read a user")
    def get(self, _request: Request, username: str) -> Response:
        return Response(UserSerializer(_find_user(username)).data)

    @extend_schema(
        tags=_TAGS,
        summary="Change the role, activate or deactivate a user",
        parameters=[IF_MATCH],
        request=UserChangeSerializer,
    )
    def patch(self, request: Request, username: str) -> Response:
        """The last admin cannot be removed. Deactivation ends all sessions and revokes all API
        tokens; a lower role also lowers the user's tokens.
        """
        data = read_body(UserChangeSerializer, request.data)
        # A change of an admin locks all admins.
        rows = User.objects.filter(Q(username=username) | Q(role=Role.ADMIN)).order_by("pk")
        read = lambda: UserSerializer(_find_user(username)).data  # noqa: E731
        with require_match(request, rows, read), transaction.atomic():
            user = _find_user(username)
            if "role" in data:
                actions.set_role(actor_of(request), user, data["role"])
            if "active" in data:
                actions.set_active(actor_of(request), user, data["active"])
        return Response(UserSerializer(_find_user(username)).data)


class Password(GenericAPIView[User]):
    write_role = "admin"
    serializer_class = PasswordSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Reset the password of a user",
        request=None,
        responses={200: PasswordSerializer},
    )
    def post(self, request: Request, username: str) -> Response:
        """The new password is returned in this response only. The old password stops working, all
        sessions end and all API tokens of the user are revoked.
        """
        read_body(Serializer, request.data)
        password, ended = actions.reset_password(actor_of(request), _find_user(username))
        outcome = {"sessions_ended": ended.sessions, "tokens_revoked": ended.tokens}
        return Response({"password": password, **outcome}, headers=_PASSWORD_ONCE)


def _find_user(username: str) -> User:
    return get_object_or_404(selectors.list_users(), username=username)
