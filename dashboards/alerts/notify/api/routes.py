"""/api/v1/alert-routes/: which alerts go to which receiver, their grouping and intervals."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.parameters import Filter
from dashboards.alerts.notify import routes, selectors
from dashboards.alerts.notify.api import generation_rows
from dashboards.alerts.notify.models import Route


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


def document(row: Route) -> dict[str, Any]:
    return {"id": str(row.pk), **routes.facts(row), "generation": row.generation}


ROUTES = generation_rows.GenerationRowKind(
    *("an alert route", "alert routes"),
    *(RouteSerializer, NewRouteSerializer, RouteChangeSerializer),
    verbs=routes,
    find=selectors.route,
    find_all=selectors.routes,
    document=document,
    order="The oldest first. For people with a role everywhere. None hides another.",
    not_added=(400, 404),
)


@ROUTES.rows
class RouteListView(generation_rows.GenerationRowListView):
    kind = ROUTES
    serializer_class = RouteSerializer
    filters = (Filter("receiver", "receiver__name", "To this receiver."),)


@ROUTES.row
class RouteView(generation_rows.GenerationRowView):
    kind = ROUTES
