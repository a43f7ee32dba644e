"""/api/v1/receivers/: who is told of alerts. Secrets go in and never come out."""

from __future__ import annotations

from typing import Any

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
from dashboards.notify import receiving, selectors
from dashboards.notify.api.deliveries import DeliverySerializer
from dashboards.notify.api.deliveries import document as delivered
from dashboards.notify.models import Kind, Receiver

_TAGS = ["alerts"]
_URL = "Of a webhook or a Slack-compatible one; write-only, kept sealed."


class ReceiverChangeSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(required=False, write_only=True, help_text=_URL)
    secret = serializers.CharField(
        required=False, write_only=True, min_length=16, help_text="Signs a webhook's messages."
    )
    to = serializers.ListField(
        child=serializers.EmailField(), required=False, help_text="Of e-mail: the addresses."
    )
    enabled = serializers.BooleanField(required=False)


class NewReceiverSerializer(ReceiverChangeSerializer):
    name = serializers.CharField(max_length=60, help_text="Lower-case letters, digits, hyphens.")
    kind = serializers.ChoiceField(choices=Kind.choices)
    everything = serializers.BooleanField(
        required=False, help_text="Make it a route for all alerts."
    )


class ReceiverSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=Kind.choices)
    shown = serializers.CharField(help_text="Where it goes, without what is secret.")
    to = serializers.ListField(child=serializers.CharField())
    signed = serializers.BooleanField()
    enabled = serializers.BooleanField()
    generation = serializers.IntegerField()
    changed_at = serializers.DateTimeField()


class Receivers(GenericAPIView[Receiver]):
    serializer_class = ReceiverSerializer
    write_role = "admin"
    filters = (Filter("kind", "kind", "Of this kind.", choices=Kind.values),)

    def get_queryset(self) -> QuerySet[Receiver]:
        return selectors.receivers()

    @extend_schema(tags=_TAGS, summary="List receivers", responses=ReceiverSerializer(many=True))
    def get(self, request: Request) -> Response:
        """By name. For people with a role everywhere."""
        require(_user(request), "viewer")
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response([document(one) for one in page])

    @extend_schema(
        tags=_TAGS,
        summary="Add a receiver",
        request=NewReceiverSerializer,
        responses={201: ReceiverSerializer, 400: ErrorSerializer, 409: ErrorSerializer},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Needs the admin role. Without `everything` it is told of nothing until a route names
        it."""
        made = receiving.create(request.user, request.data, request_id=request_id.current())
        return with_generation(Response(document(made), status=201), made.generation)


class One(APIView):
    write_role = "admin"

    @extend_schema(
        tags=_TAGS,
        summary="Read a receiver",
        responses={200: ReceiverSerializer, 404: ErrorSerializer},
    )
    def get(self, request: Request, name: str) -> Response:
        require(_user(request), "viewer")
        return _shown(selectors.receiver(name))

    @extend_schema(
        tags=_TAGS,
        summary="Change a receiver",
        parameters=[IF_MATCH],
        request=ReceiverChangeSerializer,
        responses={200: ReceiverSerializer, 400: ErrorSerializer, 404: ErrorSerializer},
    )
    def patch(self, request: Request, name: str) -> Response:
        """Needs the admin role. What is left out stays."""
        expected = expected_generation(request)
        said = request_id.current()
        return _shown(
            receiving.change(request.user, name, request.data, expected=expected, request_id=said)
        )

    @extend_schema(
        tags=_TAGS,
        summary="Remove a receiver",
        parameters=[IF_MATCH],
        responses={204: None, 404: ErrorSerializer},
    )
    def delete(self, request: Request, name: str) -> Response:
        """Needs the admin role. Its routes go with it; what it was sent stays in the history."""
        expected = expected_generation(request)
        receiving.delete(request.user, name, expected=expected, request_id=request_id.current())
        return Response(status=204)


class Test(APIView):
    write_role = "admin"

    @extend_schema(
        tags=_TAGS,
        summary="Send a receiver a test",
        request=None,
        responses={200: DeliverySerializer, 404: ErrorSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Needs the admin role. Tried once, at once: `state` and `error` say what came of it."""
        sent = receiving.try_out(request.user, name, request_id=request_id.current())
        return Response(delivered(sent))


class ForAlertmanagerSerializer(serializers.Serializer[Any]):
    """Addresses are in neither."""

    alertmanager_yml = serializers.CharField(help_text="A part of alertmanager.yml.")
    alertmanager_config = serializers.CharField(
        help_text="An AlertmanagerConfig of the Prometheus operator; it names the Secret it needs."
    )


class ForAlertmanager(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read receivers and routes for an Alertmanager",
        responses=ForAlertmanagerSerializer,
    )
    def get(self, request: Request) -> Response:
        """For people with a role everywhere."""
        require(_user(request), "viewer")
        found = selectors.for_alertmanager()
        return Response({"alertmanager_yml": found.yml(), "alertmanager_config": found.object()})


def document(row: Receiver) -> dict[str, Any]:
    fields = ("name", "kind", "shown", "to", "signed", "enabled", "generation", "changed_at")
    return {name: getattr(row, name) for name in fields}


def _shown(row: Receiver) -> Response:
    return with_generation(Response(document(row)), row.generation)


def _user(request: Request) -> Any:
    return request.user
