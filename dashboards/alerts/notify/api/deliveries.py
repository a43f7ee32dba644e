"""/api/v1/deliveries/: messages to receivers and their outcome."""

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

from console.accounts.permissions import actor_of
from console.api.parameters import Filter
from console.api.serializers import ErrorSerializer
from dashboards.alerts.notify import selectors
from dashboards.alerts.notify.models import Delivery, DeliveryState, ReceiverKind

_TAGS = ["alerts"]


class DeliverySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    receiver = serializers.CharField()
    kind = serializers.ChoiceField(choices=ReceiverKind.choices)
    endpoint = serializers.CharField(allow_null=True, help_text="Null: several, or none.")
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    attempts = serializers.IntegerField()
    next_at = serializers.DateTimeField(allow_null=True, help_text="Of the next attempt.")
    test = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        """Add `error`: why the last attempt failed."""
        return {**super().get_fields(), "error": serializers.CharField(allow_blank=True)}


class DeliveryWholeSerializer(DeliverySerializer):
    body = serializers.DictField(help_text="Alertmanager's webhook document, version 4.")


class DeliveryListView(GenericAPIView[Delivery]):
    serializer_class = DeliverySerializer
    filters = (
        Filter("state", "state", "In this state.", choices=DeliveryState.values),
        Filter("receiver", "receiver_name", "To this receiver."),
        Filter("endpoint", "endpoint__name", "About this endpoint alone."),
    )

    def get_queryset(self) -> QuerySet[Delivery]:
        return selectors.deliveries(self.request.user).defer("body")

    @extend_schema(tags=_TAGS, summary="List deliveries", responses=DeliverySerializer(many=True))
    def get(self, _request: Request) -> Response:
        """Latest first. Team members see those about their team's endpoints."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response([document(one) for one in page])


class DeliveryView(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read a delivery",
        responses={200: DeliveryWholeSerializer, 404: ErrorSerializer},
    )
    def get(self, request: Request, delivery: UUID) -> Response:
        found = selectors.delivery(actor_of(request), delivery)
        return Response({**document(found), "body": found.body})


def document(row: Delivery) -> dict[str, Any]:
    return {
        "id": str(row.pk),
        "receiver": row.receiver_name,
        "kind": row.kind,
        "endpoint": row.endpoint.name if row.endpoint else None,
        "title": row.title,
        "state": row.state,
        "attempts": row.attempts,
        "next_at": row.next_at if row.state == DeliveryState.WAITING else None,
        "error": row.error,
        "test": row.test,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }
