"""/api/v1/endpoints/apply/ and .../export/: manifests over REST, thin over `applying`.

A body is YAML (one document or many) or JSON (an object, a list, or a List). A change which is
refused for any object changes nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiTypes, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.parsers import StrictJSONParser
from console.api.shapes import ErrorSerializer
from console.web import request_id
from endpoints import applying
from endpoints.applying import Where
from endpoints.manifests import documents
from endpoints.refusals import bad_body
from endpoints.spec import SpecErrors

_TAGS = ["endpoints"]
_YES, _NO = ("1", "true", "yes", ""), ("0", "false", "no")


class Text(dict[str, str]):
    """A body which is left as it is: `documents` reads it, with its own limits."""


class YamlParser(BaseParser):
    media_type = "application/yaml"

    def parse(
        self,
        stream: Any,
        _media_type: str | None = None,
        _parser_context: Mapping[str, Any] | None = None,
    ) -> Text:
        try:
            return Text(text=stream.read(4 * documents.LONGEST).decode("utf-8"))
        except UnicodeDecodeError:
            raise ParseError("The text is not UTF-8.") from None


class OtherYamlParser(YamlParser):
    media_type = "text/yaml"


class OldYamlParser(YamlParser):
    media_type = "application/x-yaml"


_CHANGE = inline_serializer(
    "ManifestChange",
    {
        "field": serializers.CharField(),
        "label": serializers.CharField(),
        "before": serializers.JSONField(),
        "after": serializers.JSONField(),
        "effect": serializers.CharField(),
    },
    many=True,
)
_NOTE = inline_serializer(
    "ManifestNote",
    {
        "field": serializers.CharField(help_text="A path in the object."),
        "code": serializers.CharField(),
        "kind": serializers.CharField(help_text="warning, or kept: only AWS has a use for it."),
        "message": serializers.CharField(),
        "remedy": serializers.CharField(),
    },
    many=True,
)
_RESULT = inline_serializer(
    "Applied",
    {
        "dry_run": serializers.BooleanField(),
        "results": inline_serializer(
            "AppliedObject",
            {
                "object": serializers.CharField(),
                "name": serializers.CharField(help_text="The endpoint."),
                "action": serializers.CharField(help_text="create, update or unchanged"),
                "changes": _CHANGE,
                "notes": _NOTE,
            },
            many=True,
        ),
    },
)


class Apply(APIView):
    write_somewhere = True
    parser_classes = (YamlParser, OtherYamlParser, OldYamlParser, StrictJSONParser)

    @extend_schema(
        tags=_TAGS,
        summary="Apply InferenceEndpointConfig objects",
        parameters=[
            OpenApiParameter("dry_run", bool, description="Say what would change, change nothing."),
            OpenApiParameter("cluster", str, description="Where they go."),
            OpenApiParameter("namespace", str, description="For objects which name none."),
        ],
        request={"application/yaml": OpenApiTypes.STR, "application/json": OpenApiTypes.OBJECT},
        responses={200: _RESULT, 400: ErrorSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        """All of them or none. Objects without `kind` are endpoints in the console's own words."""
        where = Where(
            request.query_params.get("cluster", ""), request.query_params.get("namespace", "")
        )
        dry = _flag(request, "dry_run")
        body = request.data
        given: Any = body["text"] if isinstance(body, Text) else body
        if isinstance(given, dict):
            given = [given]
        if dry:
            planned = applying.plan(request.user, given, where)
        else:
            planned = applying.apply(request.user, given, where, request_id=request_id.current())
        results = [applying.document(one) for one in planned]
        return Response({"dry_run": dry, "results": results})


class Export(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="An endpoint as an InferenceEndpointConfig",
        parameters=[
            OpenApiParameter("output", str, enum=("yaml", "json"), description="yaml by default")
        ],
        responses={
            (200, "application/yaml"): OpenApiTypes.STR,
            (200, "application/json"): OpenApiTypes.OBJECT,
            404: ErrorSerializer,
        },
    )
    def get(self, request: Request, name: str) -> Response | HttpResponse:
        """What was imported comes out as it went in; what has no place in it is an annotation."""
        whole = applying.exported(name)
        output = request.query_params.get("output", "yaml")
        if output == "json":
            return Response(whole)
        if output != "yaml":
            raise SpecErrors([bad_body("output", output, "Write yaml or json.")])
        return HttpResponse(documents.written(whole), content_type="application/yaml")


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false").lower()
    if value not in _YES + _NO:
        raise SpecErrors([bad_body(name, value, "Write true or false.")])
    return value in _YES
