"""/api/v1/endpoints/NAME/traces/: recorded traffic, and traces in and out."""

from __future__ import annotations

from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.content import TooLarge
from console.api.serializers import ErrorSerializer
from dashboards.insight.traces import actions, storage
from dashboards.insight.traces.convert import MAX_FILE_BYTES, MAX_REQUESTS
from dashboards.insight.traces.downloads import export_response
from dashboards.insight.traces.formats import FORMATS
from dashboards.insight.traces.models import ImportedTrace
from endpoints import selectors as endpoint_selectors

_RANGE = [
    OpenApiParameter("begin", OpenApiTypes.DATETIME, description="First arrival."),
    OpenApiParameter("end", OpenApiTypes.DATETIME, description="Arrivals before this time."),
]
_FORMAT = [
    OpenApiParameter("trace_format", str, enum=list(FORMATS)),
    OpenApiParameter("block_tokens", int, description="Block size of the format dynamo (512)."),
]


class RecordedHourSerializer(serializers.Serializer[Any]):
    hour = serializers.DateTimeField()
    routers = serializers.IntegerField()
    requests = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    hit_rate = serializers.FloatField(allow_null=True)
    lost_requests = serializers.IntegerField(source="lost", help_text="Not recorded.")
    bytes = serializers.IntegerField(source="size")


class ImportedTraceSerializer(serializers.ModelSerializer[ImportedTrace]):
    trace_format = serializers.CharField(source="source_format")
    bytes = serializers.IntegerField(source="size")

    class Meta:
        model = ImportedTrace
        fields = (
            *("name", "trace_format", "imported_at", "requests", "sessions", "prompt_tokens"),
            *("output_tokens", "duration_s", "bytes"),
        )


class TracesSerializer(serializers.Serializer[Any]):
    recording = serializers.BooleanField(help_text="Endpoint field routing.record_traffic.")
    record_days = serializers.IntegerField()
    record_mib = serializers.IntegerField()
    hours = RecordedHourSerializer(many=True)
    imports = ImportedTraceSerializer(many=True)


class DeletedHoursSerializer(serializers.Serializer[Any]):
    deleted_hours = serializers.IntegerField()


class _RangeSerializer(serializers.Serializer[Any]):
    begin = serializers.DateTimeField(required=False)
    end = serializers.DateTimeField(required=False)


class _FileSerializer(_RangeSerializer):
    trace_format = serializers.CharField(default="mooncake")
    block_tokens = serializers.IntegerField(default=0, min_value=0)
    name = serializers.CharField(default="", allow_blank=True)


class TraceFileParser(BaseParser):
    """Any body, as bytes."""

    media_type = "*/*"

    def parse(self, stream: Any, *_args: Any, **_options: Any) -> Any:
        data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise TooLarge(MAX_FILE_BYTES)
        return data


def _read_query(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    serializer = kind(data=request.query_params)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


@extend_schema(tags=["routing"])
class Traces(APIView):
    @extend_schema(
        summary="List recorded hours and imported traces",
        operation_id="endpoints_traces",
        responses={200: TracesSerializer},
    )
    def get(self, _request: Request, name: str) -> Response:
        endpoint = endpoint_selectors.get(name)
        routing = endpoint.parsed.routing
        document = {
            "recording": routing.record_traffic,
            "record_days": routing.record_days,
            "record_mib": routing.record_mib,
            "hours": storage.recorded_hours(endpoint),
            "imports": storage.imported_traces(endpoint),
        }
        return Response(TracesSerializer(document).data)

    @extend_schema(
        summary="Delete recorded hours",
        description="Hours that start in the range.",
        operation_id="endpoints_traces_delete",
        parameters=_RANGE,
        responses={200: DeletedHoursSerializer, 400: ErrorSerializer},
    )
    def delete(self, request: Request, name: str) -> Response:
        query = _read_query(_RangeSerializer, request)
        missing = [field for field in ("begin", "end") if field not in query]
        if missing:
            raise serializers.ValidationError(dict.fromkeys(missing, "Give a time."))
        deleted = actions.delete_hours(request.user, name, query["begin"], query["end"])
        return Response({"deleted_hours": deleted})


@extend_schema(tags=["routing"])
class TraceExport(APIView):
    @extend_schema(
        summary="Export recorded requests or an imported trace",
        description="JSON lines. Block ids are numbers without a relation to the recorded hashes.",
        operation_id="endpoints_traces_export",
        parameters=[
            *_RANGE,
            *_FORMAT,
            OpenApiParameter("name", str, description="Imported trace instead of a range."),
        ],
        responses={(200, "application/x-ndjson"): OpenApiTypes.STR, 400: ErrorSerializer},
    )
    def get(self, request: Request, name: str) -> StreamingHttpResponse:
        return export_response(request.user, name, _read_query(_FileSerializer, request))


@extend_schema(tags=["routing"])
class TraceImports(APIView):
    parser_classes = (TraceFileParser,)

    @extend_schema(
        summary="Import a trace",
        description="The body is the file: JSON lines, plain or gzip, up to "
        f"{MAX_FILE_BYTES >> 20} MiB and {MAX_REQUESTS} requests.",
        operation_id="endpoints_traces_import",
        parameters=[OpenApiParameter("name", str, required=True), *_FORMAT],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={201: ImportedTraceSerializer, 400: ErrorSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        query = _read_query(_FileSerializer, request)
        row = actions.import_trace(
            request.user,
            name,
            query["name"],
            query["trace_format"],
            request.data if isinstance(request.data, bytes) else b"",
            query["block_tokens"],
        )
        return Response(ImportedTraceSerializer(row).data, status=201)


@extend_schema(tags=["routing"])
class OneTraceImport(APIView):
    @extend_schema(
        summary="Delete an imported trace",
        operation_id="endpoints_traces_import_delete",
        responses={204: None, 400: ErrorSerializer},
    )
    def delete(self, request: Request, name: str, trace: str) -> Response:
        actions.delete_imported(request.user, name, trace)
        return Response(status=204)
