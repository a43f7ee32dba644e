"""/api/v1/receivers/ with write-only secrets, and /api/v1/alert-routes/ (which alerts go to which
receiver, their grouping and intervals).
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of, require
from console.api.parameters import Filter
from console.audit.record import HIDDEN
from console.resources.rest import Resource
from dashboards.alerts.alertmanager import receivers, routes, selectors
from dashboards.alerts.alertmanager.config.receiver_kinds import CHOICES, KINDS
from dashboards.alerts.alertmanager.models import Receiver
from dashboards.alerts.openapi import answers, described


def _kind_fields() -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    """Return the fields of all kinds; each names the kinds that have it."""
    owners: dict[str, list[str]] = {}
    secret = {field.name for kind in KINDS.values() for field in kind.fields if field.secret}
    for name, kind in KINDS.items():
        for field in kind.fields:
            owners.setdefault(field.name, []).append(name)
    return {
        name: serializers.CharField(
            required=False, write_only=name in secret, help_text=f"Of {', '.join(kinds)}."
        )
        for name, kinds in owners.items()
    }


class ReceiverChangeSerializer(receivers.ReceiverFields):
    """The fields of all kinds, for the OpenAPI document."""

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **_kind_fields()}


class NewReceiverSerializer(receivers.NewReceiverFields):
    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **_kind_fields()}


class ReceiverSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=CHOICES)
    shown = serializers.CharField(help_text="Destination without secrets.")
    config = serializers.DictField(help_text="Fields of its kind without secrets.")
    secrets = serializers.ListField(
        child=serializers.CharField(), help_text="Names of the stored secret fields."
    )
    enabled = serializers.BooleanField()
    send_resolved = serializers.BooleanField()
    generation = serializers.IntegerField()
    changed_at = serializers.DateTimeField()


_SECRETS = sorted({field.name for kind in KINDS.values() for field in kind.fields if field.secret})
_FIELDS = ("kind", "shown", *_kind_fields(), *receivers.COMMON)


def _facts(row: Receiver) -> dict[str, Any]:
    return {"kind": row.kind, **receivers.facts(row)} | dict.fromkeys(row.secrets, HIDDEN)


RECEIVERS = Resource(
    path="receivers",
    noun="receiver",
    tag="alerts",
    words=("Add", "Remove"),
    about={
        "list": "By name. Needs a platform role.",
        "create": "Needs the admin role. Without `everything` it receives nothing until it has a "
        "route.",
        "change": "Needs the admin role. Omitted fields keep their values.",
        "delete": "Needs the admin role. Its routes are deleted.",
    },
    document=ReceiverSerializer,
    new=NewReceiverSerializer,
    changed=ReceiverChangeSerializer,
    rows=lambda _viewer: selectors.receivers(),
    find=lambda _viewer, name: selectors.receiver(name),
    filters=(Filter("kind", "kind", "Only this kind.", choices=tuple(KINDS)),),
    create=receivers.create,
    change=receivers.change,
    delete=receivers.delete,
    facts=_facts,
    labels={name: (name.replace("_", " ").capitalize(), "") for name in _FIELDS},
    secrets=_SECRETS,
    platform=True,
    view={"write_role": "admin"},
)


class ReceiverTestSerializer(serializers.Serializer[Any]):
    sent = serializers.BooleanField(
        allow_null=True, help_text="Null: Alertmanager reported no outcome in time."
    )
    message = serializers.CharField()


class ReceiverTestView(APIView):
    write_role = "admin"

    @described(
        summary="Send a receiver a test",
        request=None,
        responses=answers(ReceiverTestSerializer, 404, 409, 502),
    )
    def post(self, request: Request, name: str) -> Response:
        """Needs the admin role. Waits up to 8 s for the outcome that Alertmanager counts."""
        result = receivers.send_test(request.user, name)
        return Response(ReceiverTestSerializer(result).data)


class ForAlertmanagerSerializer(serializers.Serializer[Any]):
    """Neither field contains addresses."""

    alertmanager_yml = serializers.CharField(help_text="Part of alertmanager.yml.")
    alertmanager_config = serializers.CharField(
        help_text="AlertmanagerConfig of the Prometheus operator; refers to a Secret."
    )


class AlertmanagerConfigView(APIView):
    @described(
        summary="Read receivers and routes for an Alertmanager", responses=ForAlertmanagerSerializer
    )
    def get(self, request: Request) -> Response:
        """Needs a role on the whole platform."""
        require(actor_of(request), "viewer")
        config = selectors.config()
        return Response({"alertmanager_yml": config.yml(), "alertmanager_config": config.object()})


class RouteSerializer(routes.RouteFields):
    id = serializers.UUIDField(read_only=True)
    generation = serializers.IntegerField(read_only=True)


ROUTES = Resource(
    path="alert-routes",
    key="uuid:route",
    noun="alert route",
    tag="alerts",
    words=("Add", "Remove"),
    about={
        "list": "Oldest first. Needs a platform role. Every matching route is used.",
        "create": "Needs the admin role.",
        "change": "Needs the admin role. Omitted fields keep their values.",
        "delete": "Needs the admin role.",
    },
    document=RouteSerializer,
    new=routes.RouteFields,
    changed=routes.RouteFields(partial=True),
    rows=lambda _viewer: selectors.routes(),
    find=lambda _viewer, route: selectors.route(route),
    filters=(Filter("receiver", "receiver__name", "Only this receiver."),),
    create=routes.create,
    change=routes.change,
    delete=routes.delete,
    facts=routes.facts,
    labels={name: (name.replace("_", " ").capitalize(), "") for name in routes.FIELDS},
    platform=True,
    view={"write_role": "admin"},
)
