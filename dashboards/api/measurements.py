"""/api/v1/costs/, and calibration and cache proof of an endpoint."""

from __future__ import annotations

import time
from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from dashboards import actions, selectors
from dashboards.costs.reports.endpoints import DEFAULT_RANGE, RANGES, report, row_values
from dashboards.models import Calibration, ProofRun
from dashboards.prometheus import connections
from endpoints import selectors as endpoint_selectors


class CostsSerializer(serializers.Serializer[Any]):
    range = serializers.ChoiceField(choices=list(RANGES))
    usd_hour_now = serializers.FloatField(allow_null=True)
    cost_usd = serializers.FloatField(allow_null=True, help_text="Of the range; known prices only.")
    saved_usd = serializers.FloatField(allow_null=True, help_text="Negative when loads cost more.")
    problem = serializers.CharField(help_text='"" when Prometheus answered.')
    endpoints = serializers.ListField(
        child=serializers.DictField(), help_text="As the CSV's columns; null: not known."
    )


class CalibrationSerializer(serializers.ModelSerializer[Calibration]):
    endpoint = serializers.CharField(source="endpoint.name", read_only=True)

    class Meta:
        model = Calibration
        fields = (
            "id",
            "endpoint",
            "state",
            "stage",
            "simulated",
            "worker",
            "samples",
            "seconds_per_token",
            "message",
            "created_at",
        )
        read_only_fields = fields


class CostsView(APIView):
    @extend_schema(
        tags=["costs"],
        summary="Costs and savings",
        parameters=[OpenApiParameter("range", str, enum=list(RANGES), default=DEFAULT_RANGE)],
        responses=CostsSerializer,
    )
    def get(self, request: Request) -> Response:
        prometheus = connections.fleet()
        key = request.query_params.get("range", "")
        found = report(prometheus, key, time.time(), request.user)
        fault = found.fault
        return Response(
            {
                "range": found.key,
                "usd_hour_now": found.usd_hour,
                "cost_usd": found.total,
                "saved_usd": found.saved,
                "problem": f"{fault.title}: {fault.text} {fault.fix}" if fault else "",
                "endpoints": [row_values(row) for row in found.rows],
            }
        )


class CalibrationView(APIView):
    @extend_schema(tags=["costs"], request=None, responses={202: CalibrationSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Measure the prefill time per prompt token; a few thousand tokens are computed."""
        run = actions.start_calibration(actor_of(request), name)
        return Response(CalibrationSerializer(run).data, status=202)


class ProofSerializer(serializers.ModelSerializer[ProofRun]):
    endpoint = serializers.CharField(source="endpoint.name", read_only=True)

    class Meta:
        model = ProofRun
        fields = (
            "id",
            "endpoint",
            "generation",
            "state",
            "stage",
            "simulated",
            "proved",
            "shots",
            "verdicts",
            "message",
            "created_at",
            "finished_at",
        )
        read_only_fields = fields


@extend_schema(tags=["proof"])
class Proof(APIView):
    @extend_schema(responses=ProofSerializer)
    def get(self, _request: Request, name: str) -> Response:
        """The latest run; 404 when there was none."""
        actions.fail_abandoned_runs()
        run = selectors.get_latest_proof(endpoint_selectors.get(name))
        if run is None:
            raise Http404
        return Response(ProofSerializer(run).data)

    @extend_schema(request=None, responses={202: ProofSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Start a run; 409 while one is live or the endpoint does not serve."""
        run = actions.start_proof(actor_of(request), name)
        return Response(ProofSerializer(run).data, status=202)
