"""/api/v1/silences/: temporarily muted alerts, kept by Alertmanager. DELETE expires a silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.idempotency import idempotent
from dashboards.alerts.alertmanager import silences
from dashboards.alerts.alertmanager.silence_fields import SilenceFields
from dashboards.alerts.alertmanager.silences import Silence
from dashboards.alerts.openapi import answers, described


class SilenceSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="As in Alertmanager.")
    kind = serializers.ChoiceField(
        choices=silences.KINDS, help_text="An acknowledgement ends when its alert is resolved."
    )
    state = serializers.ChoiceField(choices=silences.STATES)
    matchers = serializers.ListField(child=serializers.CharField(), source="conditions")
    endpoint = serializers.CharField(
        allow_blank=True, help_text="The only endpoint it matches, else empty."
    )
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    comment = serializers.CharField(source="reason")
    author = serializers.CharField()
    updated_at = serializers.DateTimeField()

    def get_fields(self) -> dict[str, Any]:
        """Add `source`: the metrics source whose Alertmanager has the silence."""
        return {**super().get_fields(), "source": serializers.CharField()}


_PARAMETERS = [
    OpenApiParameter(
        "state", str, many=True, enum=silences.STATES, description="Only these states."
    ),
    OpenApiParameter("endpoint", str, many=True, description="Only these endpoints."),
]
_KIND = OpenApiParameter("kind", str, enum=[name for name, _ in silences.KINDS])


class SilenceListView(GenericAPIView[Any]):
    serializer_class = SilenceSerializer
    write_somewhere = True

    @described(
        summary="List silences",
        parameters=[*_PARAMETERS, _KIND],
        responses=answers(SilenceSerializer(many=True), 502),
    )
    def get(self, request: Request) -> Response:
        """Latest first, including expired silences unless `state` filters them. 502 if an
        Alertmanager does not respond.
        """
        return self.listed(request, request.query_params.get("kind", ""))

    @described(
        summary="Silence alerts",
        request=SilenceFields,
        responses=answers(SilenceSerializer, 400, 403, 409, 502, status=201),
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Needs the operator role for the endpoint selected by `endpoint="NAME"`; without such a
        matcher, for the whole platform. Returns the silence of the first Alertmanager, where
        several have it.
        """
        made = silences.create(request.user, request.data)
        return Response(SilenceSerializer(made[0]).data, status=201)

    def listed(self, request: Request, kind: str) -> Response:
        listing = silences.list_silences(actor_of(request))
        if listing.faults:
            raise silences.make_fault(listing.faults)
        filters = {name: request.query_params.getlist(name) for name in ("state", "endpoint")}
        rows: Sequence[Silence] = [
            row
            for row in listing.rows
            if (not filters["state"] or row.state in filters["state"])
            and (not filters["endpoint"] or row.endpoint in filters["endpoint"])
            and kind in ("", row.kind)
        ]
        page = self.paginate_queryset(rows) or []
        return self.get_paginated_response(SilenceSerializer(page, many=True).data)


class SilenceView(APIView):
    write_somewhere = True

    @described(summary="Read a silence", responses=answers(SilenceSerializer, 404))
    def get(self, request: Request, silence: str) -> Response:
        return Response(SilenceSerializer(silences.get(actor_of(request), silence)).data)

    @described(
        summary="Change a silence",
        request=SilenceFields(partial=True),
        responses=answers(SilenceSerializer, 400, 403, 404, 409, 502),
    )
    def patch(self, request: Request, silence: str) -> Response:
        """Omitted fields keep their values. 409 if the silence has expired. Alertmanager may give
        the changed silence another `id`.
        """
        row = silences.get(actor_of(request), silence)
        return Response(SilenceSerializer(silences.change(request.user, row, request.data)).data)

    @described(summary="End a silence", responses=answers(None, 404, 502, status=204))
    def delete(self, request: Request, silence: str) -> Response:
        """Takes effect immediately; Alertmanager lists the silence as expired for 30 days."""
        silences.expire(request.user, silences.get(actor_of(request), silence))
        return Response(status=204)
