""".../dry-run/ of alert rules: evaluate submitted settings over past data. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.serializers import ErrorSerializer
from console.core.errors import expect_object
from dashboards.alerts.evaluation.dry_run import KEYS, DryRun
from dashboards.alerts.evaluation.intervals import MOST_SHOWN, FiringSummary, RuleVerdict
from dashboards.alerts.settings import documents, selectors, trials
from dashboards.alerts.settings.api.serializers import SetRuleSerializer
from endpoints import selectors as endpoints

_TAGS = ["alerts"]
_ANSWERS: dict[int, Any] = {
    400: ErrorSerializer,
    403: ErrorSerializer,
    404: ErrorSerializer,
    503: ErrorSerializer,
}


class TryRuleSerializer(SetRuleSerializer):
    range = serializers.ChoiceField(
        choices=KEYS, required=False, help_text="How far back is looked; without: 24h."
    )


class RuleFiredSerializer(serializers.Serializer[Any]):
    about = serializers.CharField(help_text="Whom: the endpoint first, where it has one.")
    times = serializers.IntegerField()
    firing_s = serializers.IntegerField()
    longest_s = serializers.IntegerField()
    last = serializers.DateTimeField(allow_null=True, help_text="When it fired last.")
    firing = serializers.BooleanField(help_text="It would fire still.")
    unsure = serializers.IntegerField(
        help_text="How often its condition was seen too briefly to tell whether it fired."
    )


class RuleVerdictSerializer(serializers.Serializer[Any]):
    times = serializers.IntegerField(help_text="How often it would have fired.")
    firing_s = serializers.IntegerField(help_text="For how long, all alerts together.")
    unsure = serializers.IntegerField()
    enabled = serializers.BooleanField(help_text="false: it would fire only if it were on.")
    about = RuleFiredSerializer(many=True, help_text=f"At most {MOST_SHOWN}, the longest first.")


class RuleTrialSerializer(RuleVerdictSerializer):
    range = serializers.ChoiceField(choices=KEYS)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step_s = serializers.IntegerField(help_text="How far apart the looks at the condition are.")
    for_s = serializers.IntegerField()
    now = RuleVerdictSerializer(
        allow_null=True, help_text="With the numbers as they are; null: the same, or no rule yet."
    )
    known_s = serializers.IntegerField(help_text="For how long of it anything was scraped.")
    measured_s = serializers.IntegerField(
        allow_null=True, help_text="For how long there was what it measures; null: not known."
    )
    left = serializers.IntegerField(help_text="Groups of endpoints that were not looked at.")
    missing = serializers.ListField(
        child=serializers.CharField(), help_text="Sources which did not answer, and why."
    )


class RuleDryRunView(APIView):
    @extend_schema(
        tags=_TAGS,
        operation_id="alert_rules_try",
        summary="Try an alert rule",
        request=TryRuleSerializer,
        responses={200: RuleTrialSerializer, **_ANSWERS},
    )
    def post(self, request: Request, rule: str) -> Response:
        """Return how often the rule would have fired with the submitted settings; omitted ones keep
        their values. Needs permission to change the rule. 503 if no Prometheus responds in time.
        """
        documents.rule_document(rule, actor_of(request))
        return _tried(request, rule)


class NewRuleDryRunView(APIView):
    @extend_schema(
        tags=_TAGS,
        operation_id="alert_rules_try_new",
        summary="Try an alert rule that is not written yet",
        request=TryRuleSerializer,
        responses={200: RuleTrialSerializer, **_ANSWERS},
    )
    def post(self, request: Request) -> Response:
        """Return how often a new user-written rule would have fired; `expr` is required."""
        return _tried(request, "")


class EndpointRuleDryRunView(APIView):
    @extend_schema(
        tags=_TAGS,
        operation_id="endpoints_alert_rules_try",
        summary="Try an endpoint's alert rule",
        request=TryRuleSerializer,
        responses={200: RuleTrialSerializer, **_ANSWERS},
    )
    def post(self, request: Request, name: str, rule: str) -> Response:
        """Return how often the rule would have fired for this endpoint with these settings."""
        endpoints.get(name)
        selectors.built_in(rule)
        return _tried(request, rule, name)


def _tried(request: Request, rule: str, endpoint: str = "") -> Response:
    return Response(
        document(trials.run_trial(request.user, rule, endpoint, expect_object(request.data)))
    )


def document(found: DryRun) -> Mapping[str, Any]:
    return {
        "range": found.key,
        "since": found.since,
        "until": found.until,
        "step_s": found.step_s,
        "for_s": found.for_s,
        **_verdict(found.new),
        "now": None if found.now is None else _verdict(found.now),
        "known_s": found.known_s,
        "measured_s": found.measured_s,
        "left": found.left,
        "missing": list(found.missing),
    }


def _verdict(found: RuleVerdict) -> dict[str, Any]:
    return {
        "times": found.times,
        "firing_s": found.firing_s,
        "unsure": found.unsure,
        "enabled": not found.off,
        "about": [_fired(one) for one in found.about[:MOST_SHOWN]],
    }


def _fired(one: FiringSummary) -> dict[str, Any]:
    return {
        "about": one.about,
        "times": one.times,
        "firing_s": one.firing_s,
        "longest_s": one.longest_s,
        "last": one.last,
        "firing": one.still,
        "unsure": one.unsure,
    }
