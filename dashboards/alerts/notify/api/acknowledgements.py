"""/api/v1/acknowledgements/: acknowledged alerts. DELETE undoes one and keeps the row."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.idempotency import idempotent
from dashboards.alerts.notify import acknowledgements, selectors, silences
from dashboards.alerts.notify.api.silences import SilenceListView, SilenceSerializer
from dashboards.alerts.notify.models import Silence, SilenceKind
from dashboards.alerts.openapi import answers, described


class NewAcknowledgementSerializer(serializers.Serializer[Any]):
    alert = serializers.CharField(max_length=80, help_text="Name of the firing rule.")
    endpoint = serializers.CharField(
        required=False, help_text="Omit for alerts without an endpoint."
    )
    note = serializers.CharField(required=False, max_length=500)
    duration = serializers.CharField(
        required=False, help_text="Longest time, such as 2h (default 7d). Ends when resolved."
    )


class AcknowledgementListView(SilenceListView):
    def get_queryset(self) -> QuerySet[Silence]:
        return super().get_queryset().filter(kind=SilenceKind.ACKNOWLEDGEMENT)

    @described(summary="List acknowledgements", responses=SilenceSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Latest first, including those that have ended unless `state` filters them."""
        return super().get(request)

    @described(
        summary="Acknowledge an alert",
        request=NewAcknowledgementSerializer,
        responses=answers(SilenceSerializer, 400, 403, 409, status=201),
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Repeat notifications stop until the alert is resolved; the resolution is still sent.
        Needs the operator role for the endpoint, or for the platform if there is none. 409 if the
        alert is not firing or already acknowledged.
        """
        made = acknowledgements.create(request.user, request.data)
        return Response(SilenceSerializer(made).data, status=201)


class AcknowledgementView(APIView):
    write_somewhere = True

    @described(summary="Undo an acknowledgement", responses=answers(None, 404, status=204))
    def delete(self, request: Request, silence: UUID) -> Response:
        """Takes effect immediately; the acknowledgement stays in the list as expired."""
        silences.expire(request.user, selectors.silence(actor_of(request), silence))
        return Response(status=204)
