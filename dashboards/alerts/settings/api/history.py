"""/api/v1/alert-history/: firing intervals of alerts."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.permissions import actor_of
from console.core.errors import Problem, Refused
from dashboards.alerts.alertmanager.timeline import AlertInterval, read_timeline
from dashboards.alerts.evaluation.history import DEFAULT, RANGES
from dashboards.alerts.openapi import answers, described
from dashboards.alerts.settings.pages.timeline import at


class AlertIntervalSerializer(serializers.Serializer[Any]):
    alert = serializers.CharField()
    endpoint = serializers.CharField(allow_blank=True)
    severity = serializers.CharField(allow_blank=True)
    start = serializers.DateTimeField()
    end = serializers.DateTimeField(allow_null=True, help_text="Null: ongoing.")
    duration_s = serializers.IntegerField()
    alerts = serializers.ListField(
        child=serializers.DictField(child=serializers.CharField()),
        help_text="Labels of each alert that fired.",
    )


class AlertHistoryView(GenericAPIView[Any]):
    serializer_class = AlertIntervalSerializer

    @described(
        summary="List the alert history",
        parameters=[
            OpenApiParameter("range", str, enum=list(RANGES), description=f"Default: {DEFAULT}."),
            OpenApiParameter("alert", str, description="Only this rule."),
            OpenApiParameter("endpoint", str, description="Only this endpoint."),
        ],
        responses=answers(AlertIntervalSerializer(many=True), 400),
    )
    def get(self, request: Request) -> Response:
        """Latest first. Kept for 180 days, also of endpoints that no longer exist."""
        filters = {key: request.query_params.get(key, "") for key in ("alert", "endpoint")}
        key = request.query_params.get("range", DEFAULT)
        if key not in RANGES:
            remedy = f"Use one of {', '.join(RANGES)}."
            raise Refused(Problem("range", key, "Unknown range.", remedy, "unknown_choice"))
        rows = [
            interval
            for interval in read_timeline(actor_of(request), key).intervals
            if filters["alert"] in ("", interval.rule)
            and filters["endpoint"] in ("", interval.endpoint)
        ]
        page = self.paginate_queryset(rows) or []
        documents = [_document(row) for row in page]
        return self.get_paginated_response(AlertIntervalSerializer(documents, many=True).data)


def _document(one: AlertInterval) -> dict[str, Any]:
    return {
        "alert": one.rule,
        "endpoint": one.endpoint,
        "severity": one.severity,
        "start": at(one.start),
        "end": None if one.ongoing else at(one.end),
        "duration_s": one.duration_s,
        "alerts": one.alerts,
    }
