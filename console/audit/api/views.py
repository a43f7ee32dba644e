"""/api/v1/audit/: the audit log, limited to events visible to the caller."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView

from console.api.parameters import Filter
from console.audit import selectors
from console.audit.models import AuditEvent
from console.core.errors import Problem, Refused


class AuditSerializer(serializers.ModelSerializer[AuditEvent]):
    actor = serializers.CharField(
        source="actor_name", help_text='User name; "system": the console.'
    )
    team = serializers.CharField(
        source="team.slug", allow_null=True, help_text="Owning team at that time."
    )
    changes = serializers.DictField(help_text='{"field": [before, after]}; no secrets.')

    class Meta:
        model = AuditEvent
        fields = ("id", "at", "actor", "verb", "target", "team", "changes", "note", "request_id")
        read_only_fields = fields


def _moment(name: str, lookup: str) -> Any:
    def question(value: str) -> Q:
        try:
            moment = parse_datetime(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            remedy = "Send ISO 8601 with a time zone, such as 2026-01-31T12:00:00Z."
            raise Refused(Problem(name, value, "Invalid time.", remedy, "invalid_moment"))
        return Q(**{lookup: moment})

    return question


@extend_schema_view(
    get=extend_schema(
        tags=["audit"],
        summary="List audit log entries, newest first",
        description="Lists events of the caller's teams and their own actions; all events with a "
        "console-wide\nrole.",
    )
)
class Audit(ListAPIView[AuditEvent]):
    serializer_class = AuditSerializer
    list_order = ("-at", "-pk")
    filters = (
        Filter("actor", "actor_name__iexact", "Exact actor name."),
        Filter("verb", "verb__istartswith", "Prefix of the action."),
        Filter("target", "target__istartswith", "Prefix of the object, such as endpoint/demo."),
        Filter("team", "team__slug", "Slug of the team."),
        Filter("since", _moment("since", "at__gte"), "Start time, inclusive.", kind="date-time"),
        Filter("until", _moment("until", "at__lt"), "End time, exclusive.", kind="date-time"),
    )

    def get_queryset(self) -> QuerySet[AuditEvent]:
        return selectors.events_visible_to(self.request.user).select_related("team")
