"""/api/v1/costs/, and calibration and cache proof of an endpoint."""

from __future__ import annotations

import time
from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.bodies import read_body
from console.api.serializers import ErrorSerializer
from dashboards import actions, calibration_switches, selectors
from dashboards.costs.reports.endpoints import (
    DEFAULT_RANGE,
    RANGES,
    all_endpoint_rows,
    report,
    row_values,
)
from dashboards.models import Calibration, ProofRun
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoint_selectors


class CostsSerializer(serializers.Serializer[Any]):
    range = serializers.ChoiceField(choices=list(RANGES))
    usd_hour_now = serializers.FloatField(allow_null=True)
    cost_usd = serializers.FloatField(
        allow_null=True, help_text="Cost over the range; known prices only."
    )
    saved_usd = serializers.FloatField(
        allow_null=True, help_text="Negative if the cache costs more than it saves."
    )
    problem = serializers.CharField(help_text='"" unless Prometheus failed.')
    endpoints = serializers.ListField(
        child=serializers.DictField(), help_text="Columns as in the CSV; null: unknown."
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
            "automatic",
            "reason",
            "message",
            "created_at",
        )
        read_only_fields = fields


class CostsView(APIView):
    @extend_schema(
        tags=["costs"],
        summary="Costs and savings",
        parameters=[
            OpenApiParameter("range", str, enum=list(RANGES), default=DEFAULT_RANGE),
            OpenApiParameter("endpoint", str, description="Only this endpoint, in the sums too."),
        ],
        responses=CostsSerializer,
    )
    def get(self, request: Request) -> Response:
        prometheus = connections.fleet()
        key = request.query_params.get("range", "")
        name = request.query_params.get("endpoint", "")
        only = (lambda row: row.endpoint.name == name) if name else all_endpoint_rows
        measurement = report(prometheus, key, time.time(), request.user, only)
        fault = measurement.fault
        return Response(
            {
                "range": measurement.key,
                "usd_hour_now": measurement.usd_hour,
                "cost_usd": measurement.total,
                "saved_usd": measurement.saved,
                "problem": f"{fault.title}: {fault.text} {fault.fix}" if fault else "",
                "endpoints": [row_values(row) for row in measurement.rows],
            }
        )


class SwitchSerializer(serializers.Serializer[Any]):
    auto_calibration = serializers.BooleanField(
        allow_null=True, help_text="null: the console's default applies."
    )
    effective = serializers.BooleanField(read_only=True)


class SwitchView(APIView):
    """Default of the automatic calibration, for endpoints without an own value."""

    @extend_schema(
        tags=["costs"],
        summary="Read the default of automatic calibration",
        responses=SwitchSerializer,
    )
    def get(self, _request: Request) -> Response:
        return Response(_as_switch(calibration_switches.read_switches().default))

    @extend_schema(
        tags=["costs"],
        summary="Switch automatic calibration",
        request=SwitchSerializer,
        responses={200: SwitchSerializer, 400: ErrorSerializer},
    )
    def patch(self, request: Request) -> Response:
        """Applies to all endpoints without an own value."""
        enabled = read_body(SwitchSerializer, request.data)[calibration_switches.FIELD]
        return Response(_as_switch(calibration_switches.set_default(request.user, enabled)))


class EndpointSwitchView(APIView):
    @extend_schema(
        tags=["costs"],
        summary="Read automatic calibration of an endpoint",
        responses=SwitchSerializer,
    )
    def get(self, request: Request, name: str) -> Response:
        endpoint = endpoint_selectors.get(name, viewer=request.user)
        switches = calibration_switches.read_switches()
        own = switches.of.get(endpoint.pk)
        return Response(_as_switch(own, switches.enabled(endpoint.pk)))

    @extend_schema(
        tags=["costs"],
        summary="Switch automatic calibration of an endpoint",
        request=SwitchSerializer,
        responses={200: SwitchSerializer, 400: ErrorSerializer, 404: ErrorSerializer},
    )
    def patch(self, request: Request, name: str) -> Response:
        enabled = read_body(SwitchSerializer, request.data)[calibration_switches.FIELD]
        effective = calibration_switches.set_endpoint(request.user, name, enabled)
        return Response(_as_switch(enabled, effective))


def _as_switch(own: bool | None, effective: bool | None = None) -> dict[str, bool | None]:
    return {"auto_calibration": own, "effective": own if effective is None else effective}


class CalibrationView(APIView):
    @extend_schema(
        tags=["costs"],
        summary="Read the latest calibration",
        responses={200: CalibrationSerializer, 404: ErrorSerializer},
    )
    def get(self, request: Request, name: str) -> Response:
        """The latest run, automatic or not; 404 if there was none."""
        actions.fail_abandoned_runs()
        endpoint = endpoint_selectors.get(name, viewer=request.user)
        run = endpoint.calibrations.order_by("-created_at").first()
        if run is None:
            raise NotFound(f"{name} has not been calibrated.")
        return Response(CalibrationSerializer(run).data)

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
