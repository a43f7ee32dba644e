"""/api/v1/receivers/ with write-only secrets, /api/v1/alert-routes/ (which alerts go to which
receiver, their grouping and intervals), and /api/v1/deliveries/ (messages and their outcome).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of, require
from console.api.parameters import Filter
from dashboards.alerts.notify import receivers, routes, selectors
from dashboards.alerts.notify.api import generation_rows
from dashboards.alerts.notify.models import Delivery, DeliveryState, ReceiverKind, Route
from dashboards.alerts.openapi import answers, described

_URL = "Webhook or Slack-compatible URL; write-only, stored encrypted."


class ReceiverChangeSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(required=False, write_only=True, help_text=_URL)
    secret = serializers.CharField(
        required=False, write_only=True, min_length=16, help_text="Signs webhook messages."
    )
    to = serializers.ListField(
        child=serializers.EmailField(), required=False, help_text="E-mail recipients."
    )
    enabled = serializers.BooleanField(required=False)


class NewReceiverSerializer(ReceiverChangeSerializer):
    name = serializers.CharField(max_length=60, help_text="Lower-case letters, digits, hyphens.")
    kind = serializers.ChoiceField(choices=ReceiverKind.choices)
    everything = serializers.BooleanField(
        required=False, help_text="Create a route for all alerts."
    )


class ReceiverSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=ReceiverKind.choices)
    shown = serializers.CharField(help_text="Destination without secrets.")
    to = serializers.ListField(child=serializers.CharField())
    signed = serializers.BooleanField()
    enabled = serializers.BooleanField()
    generation = serializers.IntegerField()
    changed_at = serializers.DateTimeField()


RECEIVERS = generation_rows.GenerationRowKind(
    *("a receiver", "receivers"),
    *(ReceiverSerializer, NewReceiverSerializer, ReceiverChangeSerializer),
    verbs=receivers,
    find=selectors.receiver,
    find_all=selectors.receivers,
    document=lambda row: ReceiverSerializer(row).data,
    order="By name. Needs a platform role.",
    added="Without `everything` it receives nothing until it has a route.",
    removed="Its routes are deleted; its deliveries are kept.",
    not_added=(400, 409),
)


@RECEIVERS.rows
class ReceiverListView(generation_rows.GenerationRowListView):
    kind = RECEIVERS
    serializer_class = ReceiverSerializer
    filters = (Filter("kind", "kind", "Only this kind.", choices=ReceiverKind.values),)


@RECEIVERS.row
class ReceiverView(generation_rows.GenerationRowView):
    kind = RECEIVERS


class DeliverySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    receiver = serializers.CharField(source="receiver_name")
    kind = serializers.ChoiceField(choices=ReceiverKind.choices)
    endpoint = serializers.CharField(
        allow_null=True, source="endpoint.name", help_text="Null: several, or none."
    )
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    attempts = serializers.IntegerField()
    next_at = serializers.DateTimeField(
        allow_null=True, source="next_attempt_at", help_text="Time of the next attempt."
    )
    test = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        """Add `error`: why the last attempt failed."""
        return {**super().get_fields(), "error": serializers.CharField(allow_blank=True)}


class DeliveryWholeSerializer(DeliverySerializer):
    body = serializers.DictField(help_text="Alertmanager's webhook document, version 4.")


class ReceiverTestView(APIView):
    write_role = "admin"

    @described(
        summary="Send a receiver a test",
        request=None,
        responses=answers(DeliverySerializer, 404),
    )
    def post(self, request: Request, name: str) -> Response:
        """Needs the admin role. Sent immediately, with one attempt: `state` and `error` hold the
        result.
        """
        sent = receivers.send_test(request.user, name)
        return Response(DeliverySerializer(sent).data)


class ForAlertmanagerSerializer(serializers.Serializer[Any]):
    """Neither field contains addresses."""

    alertmanager_yml = serializers.CharField(help_text="Part of alertmanager.yml.")
    alertmanager_config = serializers.CharField(
        help_text="AlertmanagerConfig of the Prometheus operator; refers to a Secret."
    )


class AlertmanagerConfigView(APIView):
    @described(
        summary="Read receivers and routes for an Alertmanager",
        responses=ForAlertmanagerSerializer,
    )
    def get(self, request: Request) -> Response:
        """Needs a role on the whole platform."""
        require(actor_of(request), "viewer")
        found = selectors.alertmanager_export()
        return Response({"alertmanager_yml": found.yml(), "alertmanager_config": found.object()})


class RouteChangeSerializer(serializers.Serializer[Any]):
    receiver = serializers.CharField(required=False)
    matchers = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text='Matchers such as severity="page"; empty: all alerts.',
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


def _route_document(row: Route) -> dict[str, Any]:
    return {"id": str(row.pk), **routes.facts(row), "generation": row.generation}


ROUTES = generation_rows.GenerationRowKind(
    *("an alert route", "alert routes"),
    *(RouteSerializer, NewRouteSerializer, RouteChangeSerializer),
    verbs=routes,
    find=selectors.route,
    find_all=selectors.routes,
    document=_route_document,
    order="Oldest first. Needs a platform role. Every matching route is used.",
    not_added=(400, 404),
)


@ROUTES.rows
class RouteListView(generation_rows.GenerationRowListView):
    kind = ROUTES
    serializer_class = RouteSerializer
    filters = (Filter("receiver", "receiver__name", "Only this receiver."),)


@ROUTES.row
class RouteView(generation_rows.GenerationRowView):
    kind = ROUTES


class DeliveryListView(GenericAPIView[Delivery]):
    serializer_class = DeliverySerializer
    filters = (
        Filter("state", "state", "Only this state.", choices=DeliveryState.values),
        Filter("receiver", "receiver_name", "Only this receiver."),
        Filter("endpoint", "endpoint__name", "Only this endpoint."),
    )

    def get_queryset(self) -> QuerySet[Delivery]:
        return selectors.deliveries(self.request.user).defer("body")

    @described(summary="List deliveries", responses=DeliverySerializer(many=True))
    def get(self, _request: Request) -> Response:
        """Latest first. Team members see those about their team's endpoints."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response(DeliverySerializer(page, many=True).data)


class DeliveryView(APIView):
    @described(summary="Read a delivery", responses=answers(DeliveryWholeSerializer, 404))
    def get(self, request: Request, delivery: UUID) -> Response:
        found = selectors.delivery(actor_of(request), delivery)
        return Response(DeliveryWholeSerializer(found).data)
