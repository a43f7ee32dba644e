"""/api/v1/benchmarks/ and /api/v1/endpoints/NAME/benchmarks/."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.idempotency import idempotent
from console.api.parameters import Filter
from console.api.serializers import ErrorSerializer
from dashboards.benchmarks import actions, documents, load_plan, selectors
from dashboards.benchmarks.api.serializers import (
    BenchmarkSerializer,
    ComparisonSerializer,
    NewBenchmarkSerializer,
    OutlookSerializer,
    SamplesSerializer,
    parse_request,
)
from dashboards.benchmarks.generator.comparison import compare
from dashboards.benchmarks.generator.samples import COLUMNS, as_row
from dashboards.benchmarks.models import Benchmark
from endpoints import selectors as endpoints
from endpoints.runs import RunState

_TAGS = ["benchmarks"]
_STATE = Filter("state", "state", "Only this state.", choices=RunState.values)
_REFUSED = {400: ErrorSerializer, 404: ErrorSerializer, 409: ErrorSerializer}


class Benchmarks(GenericAPIView[Benchmark]):
    serializer_class = BenchmarkSerializer
    filters = (_STATE, Filter("endpoint", "endpoint__name", "Only this endpoint."))

    def get_queryset(self) -> QuerySet[Benchmark]:
        return selectors.list_runs(self.request.user)

    @extend_schema(tags=_TAGS, summary="List benchmarks", responses=BenchmarkSerializer(many=True))
    def get(self, _request: Request) -> Response:
        """Benchmarks of all visible endpoints, latest first."""
        return _list_documents(self, self.get_queryset())


class EndpointBenchmarksView(GenericAPIView[Benchmark]):
    serializer_class = BenchmarkSerializer
    filters = (_STATE,)

    def get_queryset(self) -> QuerySet[Benchmark]:
        return selectors.list_endpoint_runs(self.kwargs["name"])

    @extend_schema(
        tags=_TAGS,
        summary="List an endpoint's benchmarks",
        responses=BenchmarkSerializer(many=True),
    )
    def get(self, _request: Request, name: str) -> Response:
        endpoints.get(name)
        return _list_documents(self, self.get_queryset())

    @extend_schema(
        tags=_TAGS,
        summary="Start a benchmark",
        request=NewBenchmarkSerializer,
        responses={201: BenchmarkSerializer, **_REFUSED},
    )
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        """Puts real load on the endpoint, which its users notice: check with `plan/` first. One run
        at a time per endpoint. With `second`, that endpoint gets the same load afterwards.
        """
        made = actions.start(request.user, name, parse_request(request.data))
        return Response(documents.build_document(selectors.get_run(name, made[0].pk)), status=201)


class PlanView(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Plan a benchmark",
        request=NewBenchmarkSerializer,
        responses={200: OutlookSerializer, 400: ErrorSerializer, 404: ErrorSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Same body as a start; sends no requests."""
        benchmark = parse_request(request.data)
        names = [name, benchmark.second] if benchmark.second else [name]
        rows = [endpoints.get(name, viewer=request.user) for name in names]
        preview = load_plan.make_preview(benchmark.job(), rows)
        body = {**asdict(preview.plan), "at_most": preview.bound, "requests_s": preview.requests_s}
        return Response({**body, "endpoints": [asdict(endpoint) for endpoint in preview.endpoints]})


class BenchmarkView(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read a benchmark",
        responses={200: BenchmarkSerializer, 404: ErrorSerializer},
    )
    def get(self, _request: Request, name: str, run: UUID) -> Response:
        """`progress` is updated every second; `result` exists after the end."""
        return Response(documents.build_document(selectors.get_run(name, run)))

    @extend_schema(
        tags=_TAGS, summary="Delete a benchmark", request=None, responses={204: None, **_REFUSED}
    )
    def delete(self, request: Request, name: str, run: UUID) -> Response:
        actions.delete(request.user, selectors.get_run(name, run))
        return Response(status=204)


class Abort(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Abort a benchmark",
        request=None,
        responses={202: BenchmarkSerializer, 404: ErrorSerializer},
    )
    def post(self, request: Request, name: str, run: UUID) -> Response:
        """Takes effect at once; an ended run stays unchanged."""
        actions.abort(request.user, selectors.get_run(name, run))
        return Response(documents.build_document(selectors.get_run(name, run)), status=202)


class Samples(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read the requests of a benchmark",
        responses={200: SamplesSerializer, 404: ErrorSerializer},
    )
    def get(self, _request: Request, name: str, run: UUID) -> Response:
        samples = selectors.read_samples(selectors.get_run(name, run))
        return Response({"columns": COLUMNS, "rows": [as_row(sample) for sample in samples]})


class Compare(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Compare two benchmarks",
        parameters=[
            OpenApiParameter("a", UUID, required=True, description="ID of run A."),
            OpenApiParameter("b", UUID, required=True, description="ID of run B."),
        ],
        responses={200: ComparisonSerializer, 404: ErrorSerializer},
    )
    def get(self, request: Request) -> Response:
        """`change` is B / A - 1, with its 95 % confidence interval."""
        user: Any = request.user
        a, b = (
            selectors.get_visible_run(user, request.query_params.get(side, "")) for side in "ab"
        )
        comparison = compare(
            selectors.read_samples(a), selectors.read_samples(b), documents.list_caveats(a, b)
        )
        rows = [{**asdict(row), "sure": row.sure, "better": row.better} for row in comparison.rows]
        return Response(
            {
                "a": str(a.pk),
                "b": str(b.pk),
                "verdict": comparison.verdict,
                "confident": comparison.confident,
                "caveats": list(comparison.caveats),
                "rows": rows,
            }
        )


def _list_documents(view: GenericAPIView[Benchmark], rows: QuerySet[Benchmark]) -> Response:
    page = view.paginate_queryset(view.filter_queryset(rows)) or []
    return view.get_paginated_response([documents.build_document(row) for row in page])
