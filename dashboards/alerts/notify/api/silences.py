"""/api/v1/silences/: temporarily muted alerts. DELETE expires a silence and keeps the row."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.idempotency import idempotent
from console.api.parameters import Filter
from dashboards.alerts.notify import selectors, silences
from dashboards.alerts.notify.models import Silence, SilenceKind
from dashboards.alerts.openapi import answers, described


class NewSilenceSerializer(serializers.Serializer[Any]):
    matchers = serializers.ListField(
        child=serializers.CharField(),
        help_text='Matchers such as endpoint="chat"; all must match.',
    )
    starts_at = serializers.DateTimeField(required=False, help_text="Default: now.")
    ends_at = serializers.DateTimeField(required=False, help_text="Alternative to duration.")
    duration = serializers.CharField(required=False, help_text="Such as 30m, 2h (default) or 1d.")
    comment = serializers.CharField(max_length=500, help_text="Reason.")


class ChangeSilenceSerializer(serializers.Serializer[Any]):
    matchers = serializers.ListField(child=serializers.CharField(), required=False)
    starts_at = serializers.DateTimeField(required=False, help_text="Only before it has started.")
    ends_at = serializers.DateTimeField(required=False, help_text="Alternative to duration.")
    duration = serializers.CharField(
        required=False, help_text="From now, or from the start if that is later."
    )
    comment = serializers.CharField(max_length=500, required=False)


class SilenceSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    kind = serializers.ChoiceField(
        choices=SilenceKind.choices, help_text="An acknowledgement ends when its alert is resolved."
    )
    state = serializers.ChoiceField(choices=selectors.SILENCE_STATES, source="current_state")
    matchers = serializers.ListField(child=serializers.CharField(), source="conditions")
    endpoint = serializers.CharField(
        allow_null=True, source="endpoint.name", help_text="The only endpoint it matches."
    )
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    comment = serializers.CharField()
    author = serializers.CharField()
    created_at = serializers.DateTimeField()


class SilenceListView(GenericAPIView[Silence]):
    serializer_class = SilenceSerializer
    write_somewhere = True
    filters = (
        Filter(
            "state",
            selectors.silences_in_state,
            "Only this state.",
            choices=selectors.SILENCE_STATES,
        ),
        Filter("endpoint", "endpoint__name", "Only this endpoint."),
        Filter("kind", "kind", "Only this kind.", choices=SilenceKind.values),
    )

    def get_queryset(self) -> QuerySet[Silence]:
        return selectors.silences(self.request.user)

    @described(summary="List silences", responses=SilenceSerializer(many=True))
    def get(self, _request: Request) -> Response:
        """Latest first, including expired silences unless `state` filters them."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response(SilenceSerializer(page, many=True).data)

    @described(
        summary="Silence alerts",
        request=NewSilenceSerializer,
        responses=answers(SilenceSerializer, 400, 403, status=201),
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Needs the operator role for the endpoint selected by `endpoint="NAME"`; without such a
        matcher, for the whole platform.
        """
        made = silences.create(request.user, request.data)
        return Response(SilenceSerializer(made).data, status=201)


class SilenceView(APIView):
    write_somewhere = True

    @described(summary="Read a silence", responses=answers(SilenceSerializer, 404))
    def get(self, request: Request, silence: UUID) -> Response:
        return _document(request, silence)

    @described(
        summary="Change a silence",
        request=ChangeSilenceSerializer,
        responses=answers(SilenceSerializer, 400, 403, 404, 409, 502),
    )
    def patch(self, request: Request, silence: UUID) -> Response:
        """Omitted fields keep their values. 409 if the silence has expired; 502 if an Alertmanager
        rejects the change, which is then rolled back.
        """
        row = selectors.silence(actor_of(request), silence)
        silences.change(request.user, row, request.data)
        return _document(request, silence)

    @described(summary="End a silence", responses=answers(None, 404, status=204))
    def delete(self, request: Request, silence: UUID) -> Response:
        """Takes effect immediately; the silence stays in the list as expired."""
        row = selectors.silence(actor_of(request), silence)
        silences.expire(request.user, row)
        return Response(status=204)


def _document(request: Request, silence: UUID) -> Response:
    return Response(SilenceSerializer(selectors.silence(actor_of(request), silence)).data)
