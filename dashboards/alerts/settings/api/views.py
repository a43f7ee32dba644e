"""/api/v1/alerts/, /api/v1/alert-rules/ and the rules of one endpoint.

.../dry-run/ evaluates submitted settings over past data and changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.idempotency import idempotent
from console.api.parameters import IF_MATCH
from console.api.preconditions import expected_generation, with_generation
from console.api.serializers import ErrorSerializer
from console.core.errors import Problem, Refused, expect_object
from dashboards import selectors as dashboards_selectors
from dashboards.alerts.evaluation.firing_alerts import FIRING, PENDING, query_active
from dashboards.alerts.openapi import answers, described
from dashboards.alerts.rules.rule_file import RULES, render, render_object
from dashboards.alerts.settings import actions, documents, selectors, trials
from dashboards.alerts.settings.api.serializers import (
    GROUP_NAMES,
    AlertRuleSerializer,
    AlertSerializer,
    EndpointRuleSerializer,
    RuleFileSerializer,
    RuleTrialSerializer,
    RuleVerdictSerializer,
    SetRuleSerializer,
    TryRuleSerializer,
)
from dashboards.alerts.settings.validation import UserRuleFields
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoints

_REFUSED = {400: ErrorSerializer, 404: ErrorSerializer, 412: ErrorSerializer}


class AlertListView(GenericAPIView[Any]):
    serializer_class = AlertSerializer

    @described(
        summary="List alerts",
        parameters=[
            OpenApiParameter("state", str, enum=[FIRING, PENDING], description="Only this state."),
            OpenApiParameter("endpoint", str, description="Only this endpoint."),
        ],
        responses=answers(AlertSerializer(many=True), 409),
    )
    def get(self, request: Request) -> Response:
        """Firing alerts, then pending ones. 409 if no Prometheus responds, instead of an empty
        list.
        """
        active = query_active(
            connections.fleet(),
            dashboards_selectors.get_fleet_scope(actor_of(request)),
            documents.settings_for(actor_of(request)),
        )
        if active.why:
            text, remedy = active.why, "Check System, or try again."
            raise Refused(Problem("", None, text, remedy, "not_known"), status_code=409)
        filters = {key: request.query_params.get(key, "") for key in ("state", "endpoint")}
        rows = [
            alert
            for alert in active.alerts
            if filters["state"] in ("", alert.state) and filters["endpoint"] in ("", alert.endpoint)
        ]
        page = self.paginate_queryset(rows) or []
        return self.get_paginated_response(AlertSerializer(page, many=True).data)


class RuleListView(GenericAPIView[Any]):
    serializer_class = AlertRuleSerializer

    @described(
        summary="List alert rules",
        parameters=[
            OpenApiParameter("group", str, enum=GROUP_NAMES, description="Only this group.")
        ],
        responses=AlertRuleSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """By group. User-written rules are visible to users who may see every endpoint."""
        rows = documents.rule_documents(actor_of(request), request.query_params.get("group", ""))
        return self.get_paginated_response(self.paginate_queryset(rows) or [])

    @described(
        summary="Create an alert rule",
        request=UserRuleFields,
        responses=answers(AlertRuleSerializer, 400, 503, status=201),
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Create a user-written rule. Prometheus checks the PromQL: 503 if none responds."""
        made = actions.create_user_rule(actor_of(request), expect_object(request.data))
        return _rule(request, made.name, status=201)


class RuleView(APIView):
    @described(summary="Read an alert rule", responses=answers(AlertRuleSerializer, 404))
    def get(self, request: Request, rule: str) -> Response:
        return _rule(request, rule)

    @described(
        summary="Change an alert rule",
        parameters=[IF_MATCH],
        request=SetRuleSerializer,
        responses=answers(AlertRuleSerializer, 400, 404, 412, 503),
    )
    def patch(self, request: Request, rule: str) -> Response:
        """Built-in rules: change the platform-wide parameters; null resets one. User-written rules:
        change everything but the name.
        """
        documents.rule_document(rule, actor_of(request))
        data, expected = expect_object(request.data), expected_generation(request)
        if rule in documents.GROUP_OF:
            actions.set_rule(actor_of(request), rule, "", data, expected_generation=expected)
        else:
            actions.change_user_rule(actor_of(request), rule, data, expected_generation=expected)
        return _rule(request, rule)

    @described(
        summary="Reset or delete an alert rule",
        parameters=[IF_MATCH],
        request=None,
        responses={200: AlertRuleSerializer, 204: None, **_REFUSED},
    )
    def delete(self, request: Request, rule: str) -> Response:
        """Resets a built-in rule to its defaults (200); deletes a user-written rule (204)."""
        documents.rule_document(rule, actor_of(request))
        expected = expected_generation(request)
        if rule in documents.GROUP_OF:
            actions.reset_rule(actor_of(request), rule, "", expected_generation=expected)
            return _rule(request, rule)
        actions.delete_user_rule(actor_of(request), rule, expected_generation=expected)
        return Response(status=204)


class RuleFileView(APIView):
    @described(summary="Export the alert rules", responses=RuleFileSerializer)
    def get(self, request: Request) -> Response:
        """All rules with the current settings, for another Prometheus; and the load status in
        ours."""
        settings = documents.settings_for(actor_of(request))
        state = selectors.rule_file()
        return Response(
            {
                "rule_file": render(settings),
                "prometheus_rule": render_object(settings),
                "state": state.state if state else "",
                "message": state.message
                if state and documents.can_see_user_rules(actor_of(request))
                else "",
            }
        )


class EndpointRuleListView(GenericAPIView[Any]):
    serializer_class = EndpointRuleSerializer

    @described(
        summary="List an endpoint's alert rules", responses=EndpointRuleSerializer(many=True)
    )
    def get(self, request: Request, name: str) -> Response:
        """Effective settings, and which of them are the endpoint's own."""
        endpoints.get(name)
        settings = documents.settings_for(actor_of(request))
        rows = {row.rule: row for row in selectors.settings_of_endpoint(name)}
        documents_found = [
            documents.endpoint_rule_document(rule, settings, name, rows.get(rule.name))
            for rule in RULES
            if rule.per_endpoint
        ]
        return self.get_paginated_response(self.paginate_queryset(documents_found) or [])


class EndpointRuleView(APIView):
    @described(
        summary="Read an endpoint's alert rule", responses=answers(EndpointRuleSerializer, 404)
    )
    def get(self, request: Request, name: str, rule: str) -> Response:
        return _of_endpoint(request, name, rule)

    @described(
        summary="Set an endpoint's alert rule",
        parameters=[IF_MATCH],
        request=SetRuleSerializer,
        responses=answers(EndpointRuleSerializer, 400, 404, 412),
    )
    def patch(self, request: Request, name: str, rule: str) -> Response:
        """Omitted fields keep their values; null resets to the platform-wide setting."""
        _known(name, rule)
        data, expected = expect_object(request.data), expected_generation(request)
        actions.set_rule(actor_of(request), rule, name, data, expected_generation=expected)
        return _of_endpoint(request, name, rule)

    @described(
        summary="Reset an endpoint's alert rule",
        parameters=[IF_MATCH],
        request=None,
        responses=answers(EndpointRuleSerializer, 400, 404, 412),
    )
    def delete(self, request: Request, name: str, rule: str) -> Response:
        """Resets the endpoint to the platform-wide setting."""
        _known(name, rule)
        expected = expected_generation(request)
        actions.reset_rule(actor_of(request), rule, name, expected_generation=expected)
        return _of_endpoint(request, name, rule)


_dry_run = partial(
    described, request=TryRuleSerializer, responses=answers(RuleTrialSerializer, 400, 403, 404, 503)
)


class RuleDryRunView(APIView):
    @_dry_run(operation_id="alert_rules_try", summary="Dry-run an alert rule")
    def post(self, request: Request, rule: str) -> Response:
        """Return how often the rule would have fired with the submitted settings; omitted ones keep
        their values. Needs permission to change the rule. 503 if no Prometheus responds in time.
        """
        documents.rule_document(rule, actor_of(request))
        return _tried(request, rule)


class NewRuleDryRunView(APIView):
    @_dry_run(operation_id="alert_rules_try_new", summary="Dry-run a new alert rule")
    def post(self, request: Request) -> Response:
        """Return how often a new user-written rule would have fired; `expr` is required."""
        return _tried(request, "")


class EndpointRuleDryRunView(APIView):
    @_dry_run(operation_id="endpoints_alert_rules_try", summary="Dry-run an endpoint's alert rule")
    def post(self, request: Request, name: str, rule: str) -> Response:
        """Return how often the rule would have fired for this endpoint with these settings."""
        _known(name, rule)
        return _tried(request, rule, name)


def _tried(request: Request, rule: str, endpoint: str = "") -> Response:
    trial = trials.run_trial(request.user, rule, endpoint, expect_object(request.data))
    names = ("since", "until", "step_s", "for_s", "known_s", "measured_s", "left", "missing")
    whole = {
        "range": trial.key,
        **RuleVerdictSerializer(trial.new).data,
        "now": RuleVerdictSerializer(trial.now).data if trial.now else None,
        **{name: getattr(trial, name) for name in names},
    }
    return Response(whole)


def _known(name: str, rule: str) -> None:
    """Raise 404 before a change is validated."""
    endpoints.get(name)
    selectors.built_in(rule)


def _of_endpoint(request: Request, name: str, rule: str) -> Response:
    endpoints.get(name)
    row = selectors.row(rule, name)
    settings = documents.settings_for(actor_of(request))
    document = documents.endpoint_rule_document(selectors.built_in(rule), settings, name, row)
    return with_generation(Response(document), document["generation"])


def _rule(request: Request, name: str, status: int = 200) -> Response:
    document = documents.rule_document(name, actor_of(request))
    return with_generation(Response(document, status=status), document["generation"])
