"""/api/v1/acknowledgements/: acknowledged alerts. DELETE undoes one."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.idempotency import idempotent
from dashboards.alerts.alertmanager import silences
from dashboards.alerts.alertmanager.api.silences import (
    _PARAMETERS,
    SilenceListView,
    SilenceSerializer,
)
from dashboards.alerts.alertmanager.silence_fields import AcknowledgementFields
from dashboards.alerts.openapi import answers, described


class AcknowledgementListView(SilenceListView):
    @described(
        summary="List acknowledgements",
        parameters=_PARAMETERS,
        responses=answers(SilenceSerializer(many=True), 502),
    )
    def get(self, request: Request) -> Response:
        """Latest first, including those that have ended unless `state` filters them."""
        return self.listed(request, "acknowledgement")

    @described(
        summary="Acknowledge an alert",
        request=AcknowledgementFields,
        responses=answers(SilenceSerializer, 400, 403, 409, 502, status=201),
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Repeat notifications stop until the alert is resolved. Needs the operator role for the
        endpoint, or for the platform if there is none. 409 if the alert is not firing or already
        acknowledged.
        """
        made = silences.acknowledge(request.user, request.data)
        return Response(SilenceSerializer(made[0]).data, status=201)


class AcknowledgementView(APIView):
    write_somewhere = True

    @described(summary="Undo an acknowledgement", responses=answers(None, 404, 502, status=204))
    def delete(self, request: Request, silence: str) -> Response:
        """Takes effect immediately."""
        silences.expire(request.user, silences.get(actor_of(request), silence))
        return Response(status=204)
