"""/api/v1/alert-clusters/: clusters in which rules and receivers are maintained as objects."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of, require
from console.api.parameters import IF_MATCH
from console.api.preconditions import expected_generation, with_generation
from dashboards.alerts.cluster_objects import actions, selectors
from dashboards.alerts.cluster_objects.models import ClusterAlerts
from dashboards.alerts.openapi import answers, described


class ClusterAlertsSerializer(serializers.Serializer[Any]):
    cluster = serializers.CharField(source="name")
    rules = serializers.BooleanField(source="row.rules")
    receivers = serializers.BooleanField(source="row.receivers")
    namespace = serializers.CharField(help_text="Target namespace.")
    labels = serializers.DictField(
        child=serializers.CharField(allow_blank=True), source="row.labels"
    )
    phase = serializers.CharField(help_text="Off, Pending, Ready, Degraded, Failed or Deleting.")
    reason = serializers.CharField(source="status.reason")
    message = serializers.CharField(source="status.message")
    objects = serializers.ListField(
        child=serializers.CharField(),
        help_text="Objects of this console that may exist in the cluster.",
    )
    kept_at = serializers.DateTimeField(
        allow_null=True, source="status.kept_at", help_text="Time of the last successful sync."
    )
    corrected = serializers.IntegerField(
        source="status.corrected", help_text="Number of reverted changes by others."
    )
    corrected_at = serializers.DateTimeField(allow_null=True, source="status.corrected_at")
    correction = serializers.CharField(
        source="status.correction", help_text="Last reverted change."
    )
    generation = serializers.IntegerField(source="row.generation")


class ClusterAlertsListView(GenericAPIView[ClusterAlerts]):
    serializer_class = ClusterAlertsSerializer

    @described(summary="List alert sync of clusters", responses=ClusterAlertsSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List every cluster, by name. Needs a role on the whole platform."""
        require(actor_of(request), "viewer")
        page = self.paginate_queryset(selectors.cluster_summaries()) or []
        return self.get_paginated_response(ClusterAlertsSerializer(page, many=True).data)


class ClusterAlertsView(APIView):
    write_role = "admin"

    @described(
        summary="Read alert sync of a cluster", responses=answers(ClusterAlertsSerializer, 404)
    )
    def get(self, request: Request, name: str) -> Response:
        require(actor_of(request), "viewer")
        return _shown(name)

    @described(
        summary="Change alert sync of a cluster",
        parameters=[IF_MATCH],
        request=actions.ClusterAlertsFields,
        responses=answers(ClusterAlertsSerializer, 400, 404, 409, 412),
    )
    def patch(self, request: Request, name: str) -> Response:
        """Needs the admin role. `phase` reports the result shortly afterwards; disabled objects
        are removed from the cluster.
        """
        expected = expected_generation(request)
        actions.change(request.user, name, request.data, expected_generation=expected)
        return _shown(name)


class ClusterAlertsCheckView(APIView):
    write_role = "operator"

    @described(
        summary="Check a cluster's alert objects now",
        request=None,
        responses=answers(ClusterAlertsSerializer, 404, status=202),
    )
    def post(self, request: Request, name: str) -> Response:
        """Reconcile now instead of at the next pass (one a minute)."""
        actions.check(request.user, name)
        return _shown(name, 202)


def _shown(name: str, status: int = 200) -> Response:
    row = selectors.one(name)
    response = Response(ClusterAlertsSerializer(row).data, status=status)
    return with_generation(response, row.row.generation)
