"""/api/v1/alert-routes/: which receiver is told of which alerts, together with which, how often."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import require
from console.api.filters import Filter
from console.api.idempotency import idempotent
from console.api.parameters import IF_MATCH
from console.api.preconditions import expected_generation, with_generation
from console.api.shapes import ErrorSerializer
from console.web import request_id
from dashboards.notify import routing, selectors
from dashboards.notify.models import Route

_TAGS = ["alerts"]


class RouteChangeSerializer(serializers.Serializer[Any]):
    receiver = serializers.CharField(required=False)
    matchers = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text='Conditions such as severity="page"; without any it is told of all alerts.',
    )
    group_by = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="alertname and endpoint."
    )
    group_wait = serializers.CharField(required=False, help_text="30s.")
    group_interval = serializers.CharField(required=False, help_text="5m.")
    repeat_interval = serializers.CharField(required=False, help_text="4h.")
    send_resolved = serializers.BooleanField(required=False)


class NewRouteSerializer(RouteChangeSerializer):
    receiver = serializers.CharField()


class RouteSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    receiver = serializers.CharField()
    matchers = serializers.ListField(child=serializers.CharField())
    group_by = serializers.ListField(child=serializers.CharField())
    group_wait = serializers.CharField()
    group_interval = serializers.CharField()
    repeat_interval = serializers.CharField()
    send_resolved = serializers.BooleanField()
    generation = serializers.IntegerField()


class Routes(GenericAPIView[Route]):
    serializer_class = RouteSerializer
    write_role = "admin"
    filters = (Filter("receiver", "receiver__name", "To this receiver."),)

    def get_queryset(self) -> QuerySet[Route]:
        return selectors.routes()

    @extend_schema(tags=_TAGS, summary="List alert routes", responses=RouteSerializer(many=True))
    def get(self, request: Request) -> Response:
        """The oldest first. For people with a role everywhere. None hides another."""
        require(_user(request), "viewer")
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response([document(one) for one in page])

    @extend_schema(
        tags=_TAGS,
        summary="Add an alert route",
        request=NewRouteSerializer,
        responses={201: RouteSerializer, 400: ErrorSerializer, 404: ErrorSerializer},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Needs the admin role."""
        made = routing.create(request.user, request.data, request_id=request_id.current())
        return with_generation(Response(document(made), status=201), made.generation)


class One(APIView):
    write_role = "admin"

    @extend_schema(
        tags=_TAGS,
        summary="Read an alert route",
        responses={200: RouteSerializer, 404: ErrorSerializer},
    )
    def get(self, request: Request, route: UUID) -> Response:
        require(_user(request), "viewer")
        return _shown(selectors.route(route))

    @extend_schema(
        tags=_TAGS,
        summary="Change an alert route",
        parameters=[IF_MATCH],
        request=RouteChangeSerializer,
        responses={200: RouteSerializer, 400: ErrorSerializer, 404: ErrorSerializer},
    )
    def patch(self, request: Request, route: UUID) -> Response:
        """Needs the admin role. What is left out stays."""
        expected = expected_generation(request)
        said = request_id.current()
        return _shown(
            routing.change(request.user, route, request.data, expected=expected, request_id=said)
        )

    @extend_schema(
        tags=_TAGS,
        summary="Remove an alert route",
        parameters=[IF_MATCH],
        responses={204: None, 404: ErrorSerializer},
    )
    def delete(self, request: Request, route: UUID) -> Response:
        """Needs the admin role."""
        expected = expected_generation(request)
        routing.delete(request.user, route, expected=expected, request_id=request_id.current())
        return Response(status=204)


def document(row: Route) -> dict[str, Any]:
    return {"id": str(row.pk), **routing.facts(row), "generation": row.generation}


def _shown(row: Route) -> Response:
    return with_generation(Response(document(row)), row.generation)


def _user(request: Request) -> Any:
    return request.user
