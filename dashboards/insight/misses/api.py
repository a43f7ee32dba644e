"""/api/v1/endpoints/NAME/misses/ and misses/: computed prompt tokens by cause."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.serializers import ErrorSerializer
from console.core.errors import Problem, Refused
from dashboards.insight.misses import groups as miss_groups
from dashboards.insight.misses import report as misses
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoint_selectors
from endpoints.api.routing import AWAY, RouterUnavailable
from routing.engine.misses.attribution import CAUSES


class MissSumSerializer(serializers.Serializer[Any]):
    """Computed tokens of one cause. `seconds`: prefill time; `usd_error`: ± of `usd`. Null: not
    calibrated, or no price.
    """

    code = serializers.CharField(allow_blank=True)
    name = serializers.CharField(source="label")
    tokens = serializers.IntegerField()
    share = serializers.FloatField(help_text="Of all computed tokens.")
    seconds = serializers.FloatField(allow_null=True)
    usd = serializers.FloatField(allow_null=True)
    usd_error = serializers.FloatField(allow_null=True)


class MissCauseSerializer(MissSumSerializer):
    remedy = serializers.CharField(source="remedy.text")


class MissHourSerializer(serializers.Serializer[Any]):
    hour = serializers.DateTimeField(source="start")
    causes = serializers.DictField(child=serializers.IntegerField())


class MissTemplateSerializer(serializers.Serializer[Any]):
    """Prompts of one template, which change early; positions are of its latest request."""

    template = serializers.CharField(source="code", help_text="Hash of what its prompts share.")
    cause = serializers.CharField(source="cost.code")
    requests = serializers.IntegerField(source="totals.requests")
    tokens = serializers.IntegerField(
        source="cost.tokens", help_text="Computed because of the change."
    )
    usd = serializers.FloatField(source="cost.usd", allow_null=True)
    saved_tokens = serializers.IntegerField(
        source="saving.tokens",
        help_text="Estimate: cached if the changing part stood behind the stable one.",
    )
    saved_usd = serializers.FloatField(source="saving.usd", allow_null=True)
    changed_offset = serializers.IntegerField(
        source="totals.offset", help_text="First changed token."
    )
    changed_part = serializers.CharField(source="totals.part", allow_blank=True)
    stable_tokens = serializers.IntegerField(
        source="totals.stable", help_text="Repeated behind the change."
    )
    decision = serializers.CharField(source="totals.decision", allow_blank=True)
    remedy = serializers.CharField(source="cost.remedy.text")


class MissExampleSerializer(serializers.Serializer[Any]):
    decision = serializers.CharField(source="decision.id")
    tokens = serializers.IntegerField()
    age_s = serializers.FloatField(allow_null=True, help_text="Since the lost part was used.")
    changed_offset = serializers.IntegerField(
        source="offset", allow_null=True, help_text="First changed token."
    )
    changed_part = serializers.CharField(source="part", allow_blank=True)
    displaced_by = serializers.CharField(allow_blank=True, help_text="Decision ID.")


class MissesSerializer(serializers.Serializer[Any]):
    """Kept in the routers' memory: a restarted router begins anew."""

    range = serializers.ChoiceField(list(misses.RANGES), source="key")
    since = serializers.DateTimeField(help_text="Begin of the range, or start of the routers.")
    note = serializers.CharField(allow_blank=True, help_text="Routers that did not respond.")
    requests = serializers.IntegerField(source="totals.requests")
    unreported_requests = serializers.IntegerField(
        source="totals.unreported",
        help_text="Left out: cut off early, or answered without the number of cached tokens.",
    )
    prompt_tokens = serializers.IntegerField(source="totals.prompt")
    cached_tokens = serializers.IntegerField(source="totals.cached")
    computed_tokens = serializers.IntegerField(source="totals.computed")
    seconds_per_token = serializers.FloatField(source="price.seconds", allow_null=True)
    price_missing = serializers.CharField(source="price.why", allow_blank=True)
    causes = MissCauseSerializer(many=True)
    keys = MissSumSerializer(many=True)
    prefixes = MissSumSerializer(many=True)
    hours = MissHourSerializer(many=True)
    templates = MissTemplateSerializer(many=True)
    examples = MissExampleSerializer(many=True)


class Misses(APIView):
    @extend_schema(
        tags=["routing"],
        summary="Read the computed prompt tokens by cause",
        description="Every computed prompt token has exactly one cause; the causes add up to "
        "`computed_tokens`.",
        operation_id="endpoints_misses",
        parameters=[
            OpenApiParameter("range", str, enum=list(misses.RANGES)),
            OpenApiParameter("cause", str, enum=list(CAUSES), description="With examples of it."),
        ],
        responses={200: MissesSerializer, 400: ErrorSerializer, **AWAY},
    )
    def get(self, request: Request, name: str) -> Response:
        endpoint = endpoint_selectors.get(name)
        key = request.query_params.get("range", misses.DEFAULT_RANGE)
        cause = request.query_params.get("cause", "")
        report = misses.report(endpoint, key)
        if report.error:
            raise RouterUnavailable(report.error)
        examples = misses.examples(endpoint, cause) if cause else ()
        return Response(MissesSerializer(replace(report, examples=examples)).data)


class MissGroupSerializer(serializers.Serializer[Any]):
    """Computed tokens of one group. `seconds`, `usd`: null where no endpoint of it is calibrated or
    priced; else without the tokens that `uncalibrated_tokens` and `unpriced_tokens` count.
    """

    name = serializers.CharField()
    tokens = serializers.IntegerField()
    share = serializers.FloatField(help_text="Of all computed tokens.")
    seconds = serializers.FloatField(source="known_seconds", allow_null=True)
    usd = serializers.FloatField(source="known_usd", allow_null=True)
    usd_error = serializers.FloatField()
    uncalibrated_tokens = serializers.IntegerField(source="uncalibrated")
    unpriced_tokens = serializers.IntegerField(source="unpriced")
    causes = serializers.DictField(child=serializers.IntegerField())


class MissGroupsSerializer(serializers.Serializer[Any]):
    range = serializers.ChoiceField(list(miss_groups.RANGES))
    by = serializers.CharField()
    note = serializers.CharField(allow_blank=True, help_text="Prometheus did not respond.")
    computed_tokens = serializers.IntegerField(
        allow_null=True, help_text="null: unknown, see `note`."
    )
    groups = MissGroupSerializer(many=True)
    causes = MissGroupSerializer(many=True)


class AllMisses(APIView):
    @extend_schema(
        tags=["costs"],
        summary="Read the computed prompt tokens of all endpoints by group and cause",
        description="From Prometheus, of the endpoints that the caller may see.",
        operation_id="misses",
        parameters=[
            OpenApiParameter("range", str, enum=list(miss_groups.RANGES)),
            OpenApiParameter(
                "by", str, description="endpoint, team, model, machine or tag:KEY (endpoint)."
            ),
        ],
        responses={200: MissGroupsSerializer, 400: ErrorSerializer},
    )
    def get(self, request: Request) -> Response:
        key = request.query_params.get("range", misses.DEFAULT_RANGE)
        by = request.query_params.get("by", miss_groups.BY[0])
        tag = by.startswith(miss_groups.TAG) and by != miss_groups.TAG
        if by not in miss_groups.BY and not tag:
            remedy = f"Use one of {', '.join(miss_groups.BY)}, tag:KEY."
            raise Refused(Problem("by", by[:80], "Unknown group.", remedy, "invalid_choice"))
        report = miss_groups.report(connections.fleet(), key, by, time.time(), request.user)
        return Response(
            {
                "range": key,
                "by": by,
                "note": f"{report.fault.title}. {report.fault.text}" if report.fault else "",
                "computed_tokens": report.tokens if report.groups or not report.fault else None,
                "groups": MissGroupSerializer(report.groups, many=True).data,
                "causes": MissGroupSerializer(report.causes, many=True).data,
            }
        )
