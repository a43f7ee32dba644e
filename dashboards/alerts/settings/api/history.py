"""/api/v1/alert-history/: pending and firing intervals with the notifications of each."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.permissions import actor_of
from console.core.errors import Problem, Refused
from dashboards import selectors as dashboards_selectors
from dashboards.alerts.evaluation.firing_alerts import FIRING, PENDING
from dashboards.alerts.evaluation.history import DEFAULT, RANGES
from dashboards.alerts.evaluation.timeline import AlertInterval, query_timeline
from dashboards.alerts.notify import notification_log
from dashboards.alerts.notify.notification_log import Notification
from dashboards.alerts.openapi import answers, described
from dashboards.alerts.settings.pages.timeline import notifications_of, span_of
from dashboards.prometheus.sources import selectors as connections


class AlertNotificationSerializer(serializers.Serializer[Any]):
    delivery = serializers.UUIDField()
    receiver = serializers.CharField()
    content = serializers.ChoiceField(choices=("firing", "resolved"))
    outcome = serializers.CharField(help_text="State of the delivery.")
    created_at = serializers.DateTimeField()
    error = serializers.CharField(allow_blank=True)


class AlertIntervalSerializer(serializers.Serializer[Any]):
    alert = serializers.CharField()
    endpoint = serializers.CharField(allow_blank=True)
    severity = serializers.CharField(allow_blank=True)
    phase = serializers.CharField(help_text="pending or firing.")
    start = serializers.DateTimeField(help_text="Exact to `step_s`.")
    end = serializers.DateTimeField(allow_null=True, help_text="Null: ongoing.")
    duration_s = serializers.IntegerField()
    step_s = serializers.IntegerField()
    notifications = AlertNotificationSerializer(many=True)


class AlertHistoryView(GenericAPIView[Any]):
    serializer_class = AlertIntervalSerializer

    @described(
        summary="List the alert history",
        parameters=[
            OpenApiParameter("range", str, enum=list(RANGES), description=f"Default: {DEFAULT}."),
            OpenApiParameter("alert", str, description="Only this rule."),
            OpenApiParameter("endpoint", str, description="Only this endpoint."),
            OpenApiParameter("phase", str, enum=[FIRING, PENDING], description="Only this phase."),
        ],
        responses=answers(AlertIntervalSerializer(many=True), 400, 409),
    )
    def get(self, request: Request) -> Response:
        """Latest first, exact to the step of the range. 409 if no Prometheus responds."""
        wanted = {key: request.query_params.get(key, "") for key in ("alert", "endpoint", "phase")}
        key = request.query_params.get("range", DEFAULT)
        if key not in RANGES:
            remedy = f"Use one of {', '.join(RANGES)}."
            raise Refused(Problem("range", key, "Unknown range.", remedy, "unknown_choice"))
        viewer = actor_of(request)
        found = query_timeline(
            connections.fleet(), dashboards_selectors.get_fleet_scope(viewer), key
        )
        if found.why:
            remedy = "Check the metrics source under System, or try again."
            raise Refused(Problem("", None, found.why, remedy, "not_known"), status_code=409)
        rows = [
            one
            for one in found.intervals
            if wanted["alert"] in ("", one.rule)
            and wanted["endpoint"] in ("", one.endpoint)
            and wanted["phase"] in ("", one.state)
        ]
        page = self.paginate_queryset(rows) or []
        since = notification_log.at(found.window.start)
        sent = notification_log.read_deliveries(viewer, since) if page else []
        documents = [_document(one, sent) for one in page]
        return self.get_paginated_response(AlertIntervalSerializer(documents, many=True).data)


def _document(one: AlertInterval, sent: list[Any]) -> dict[str, Any]:
    span = span_of(one)
    return {
        "alert": one.rule,
        "endpoint": one.endpoint,
        "severity": one.severity,
        "phase": one.state,
        "start": span.start,
        "end": None if one.ongoing else span.end,
        "duration_s": one.duration_s,
        "step_s": one.step_s,
        "notifications": [_notification(each) for each in notifications_of(one, sent)],
    }


def _notification(one: Notification) -> dict[str, Any]:
    return {
        "delivery": one.delivery.pk,
        "receiver": one.delivery.receiver_name,
        "content": "resolved" if one.resolved else "firing",
        "outcome": one.delivery.state,
        "created_at": one.delivery.created_at,
        "error": one.delivery.error,
    }
