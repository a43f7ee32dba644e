"""/api/v1/sessions/: the caller's sessions; session and second-factor resets by admins.

Second-factor setup, single sign-on and confirmation need a browser and have no REST API.
"""

from __future__ import annotations

from typing import cast

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.models import User
from console.accounts.permissions import actor_of
from console.audit.record import record
from console.signon import factors, flow, models
from console.signon.models import Session

_TAGS = ["access"]


class SessionSerializer(serializers.ModelSerializer[Session]):
    id = serializers.CharField(source="session_key", help_text="Identifier; grants no access.")
    browser = serializers.CharField(help_text="Browser and operating system.")
    method = serializers.CharField(help_text="Login method.")
    expires_at = serializers.DateTimeField(source="expire_date")

    class Meta:
        model = Session
        fields = ("id", "browser", "agent", "address", "method", "created_at", "last_seen_at",
                  "expires_at")  # fmt: skip
        read_only_fields = fields


@extend_schema_view(get=extend_schema(tags=_TAGS, summary="List own sessions"))
class Sessions(ListAPIView[Session]):
    read_role = write_role = "member"
    serializer_class = SessionSerializer
    list_order = ("-created_at", "-session_key")

    def get_queryset(self) -> QuerySet[Session]:
        return models.live_sessions(_caller(self.request))


class SessionView(GenericAPIView[Session]):
    read_role = write_role = "member"
    serializer_class = SessionSerializer

    @extend_schema(tags=_TAGS, summary="Read an own session")
    def get(self, request: Request, key: str) -> Response:
        return Response(SessionSerializer(_own(request, key)).data)

    @extend_schema(tags=_TAGS, summary="End an own session")
    def delete(self, request: Request, key: str) -> Response:
        session = _own(request, key)
        session.delete()
        user = _caller(request)
        record(user, "user.session.end", flow.target(user), {"address": session.address})
        return Response(status=204)


class PersonSessions(GenericAPIView[Session]):
    write_role = "admin"
    serializer_class = SessionSerializer

    @extend_schema(tags=_TAGS, summary="End all sessions of a user")
    def delete(self, request: Request, username: str) -> Response:
        """API tokens remain valid."""
        person = get_object_or_404(User, username=username)
        ended = flow.end_sessions(person)
        record(actor_of(request), "user.session.end", flow.target(person), {"all": ended})
        return Response(status=204)


class PersonFactor(GenericAPIView[Session]):
    write_role = "admin"
    serializer_class = SessionSerializer

    @extend_schema(tags=_TAGS, summary="Reset the second factor of a user")
    def delete(self, request: Request, username: str) -> Response:
        """For a user who lost the second factor: the password alone suffices afterwards. All
        sessions of the user end.
        """
        person = get_object_or_404(User, username=username)
        if not factors.turn_off(actor_of(request), person):
            raise Http404
        flow.end_sessions(person)
        return Response(status=204)


def _caller(request: Request) -> User:
    return cast(User, request.user)


def _own(request: Request, key: str) -> Session:
    return get_object_or_404(models.live_sessions(_caller(request)), pk=key)
