"""/api/v1/receivers/: receivers of alerts. Secrets are write-only."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of, require
from console.api.parameters import Filter
from console.api.serializers import ErrorSerializer
from console.core import request_log
from dashboards.alerts.notify import receivers, selectors
from dashboards.alerts.notify.api import generation_rows
from dashboards.alerts.notify.api.deliveries import DeliverySerializer
from dashboards.alerts.notify.api.deliveries import document as delivered
from dashboards.alerts.notify.models import Receiver, ReceiverKind

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
    kind = serializers.ChoiceField(choices=ReceiverKind.choices)
    everything = serializers.BooleanField(
        required=False, help_text="Make it a route for all alerts."
    )


class ReceiverSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=ReceiverKind.choices)
    shown = serializers.CharField(help_text="Where it goes, without what is secret.")
    to = serializers.ListField(child=serializers.CharField())
    signed = serializers.BooleanField()
    enabled = serializers.BooleanField()
    generation = serializers.IntegerField()
    changed_at = serializers.DateTimeField()


def document(row: Receiver) -> dict[str, Any]:
    fields = ("name", "kind", "shown", "to", "signed", "enabled", "generation", "changed_at")
    return {name: getattr(row, name) for name in fields}


RECEIVERS = generation_rows.GenerationRowKind(
    *("a receiver", "receivers"),
    *(ReceiverSerializer, NewReceiverSerializer, ReceiverChangeSerializer),
    verbs=receivers,
    find=selectors.receiver,
    find_all=selectors.receivers,
    document=document,
    order="By name. For people with a role everywhere.",
    added="Without `everything` it is told of nothing until a route names it.",
    removed="Its routes go with it; what it was sent stays in the history.",
    not_added=(400, 409),
)


@RECEIVERS.rows
class ReceiverListView(generation_rows.GenerationRowListView):
    kind = RECEIVERS
    serializer_class = ReceiverSerializer
    filters = (Filter("kind", "kind", "Of this kind.", choices=ReceiverKind.values),)


@RECEIVERS.row
class ReceiverView(generation_rows.GenerationRowView):
    kind = RECEIVERS


class ReceiverTestView(APIView):
    write_role = "admin"

    @extend_schema(
        tags=_TAGS,
        summary="Send a receiver a test",
        request=None,
        responses={200: DeliverySerializer, 404: ErrorSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Needs the admin role. Sent immediately, with one attempt: `state` and `error` hold the
        result.
        """
        sent = receivers.send_test(request.user, name, request_id=request_log.current_id())
        return Response(delivered(sent))


class ForAlertmanagerSerializer(serializers.Serializer[Any]):
    """Neither field contains addresses."""

    alertmanager_yml = serializers.CharField(help_text="A part of alertmanager.yml.")
    alertmanager_config = serializers.CharField(
        help_text="An AlertmanagerConfig of the Prometheus operator; it names the Secret it needs."
    )


class AlertmanagerConfigView(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read receivers and routes for an Alertmanager",
        responses=ForAlertmanagerSerializer,
    )
    def get(self, request: Request) -> Response:
        """Needs a role on the whole platform."""
        require(actor_of(request), "viewer")
        found = selectors.alertmanager_export()
        return Response({"alertmanager_yml": found.yml(), "alertmanager_config": found.object()})
