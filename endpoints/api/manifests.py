"""/api/v1/endpoints/apply/ and .../export/: manifests over REST.

A body is YAML (one or more documents) or JSON (an object, a list, or a List). If any object is
rejected, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiTypes
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.content import StrictJSONParser, read_text
from console.api.parameters import DRY_RUN, is_dry_run
from endpoints import manifest_actions
from endpoints.api.answers import operation
from endpoints.api.serializers import AppliedSerializer
from endpoints.manifest_actions import ManifestTarget
from endpoints.manifests import documents


class ManifestText(dict[str, str]):
    """Unparsed body; `documents` parses it and enforces its limits."""


class YamlParser(BaseParser):
    media_type = "application/yaml"

    def parse(
        self,
        stream: Any,
        _media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> ManifestText:
        return ManifestText(text=read_text(stream, parser_context))


class OtherYamlParser(YamlParser):
    media_type = "text/yaml"


class OldYamlParser(YamlParser):
    media_type = "application/x-yaml"


class Apply(APIView):
    write_somewhere = True
    parser_classes = (YamlParser, OtherYamlParser, OldYamlParser, StrictJSONParser)

    @operation(
        "Apply InferenceEndpointConfig objects",
        {200: AppliedSerializer},
        400,
        409,
        parameters=[
            DRY_RUN,
            OpenApiParameter("cluster", str, description="Target cluster."),
            OpenApiParameter("namespace", str, description="For objects without a namespace."),
        ],
        request={"application/yaml": OpenApiTypes.STR, "application/json": OpenApiTypes.OBJECT},
    )
    def post(self, request: Request) -> Response:
        """Atomic: all objects or none. Objects without `kind` are endpoints in the console's own
        format.
        """
        where = ManifestTarget(
            request.query_params.get("cluster", ""), request.query_params.get("namespace", "")
        )
        dry = is_dry_run(request)
        body = request.data
        manifest_data: Any = body["text"] if isinstance(body, ManifestText) else body
        if not isinstance(manifest_data, (str, list)):
            manifest_data = [manifest_data]
        if dry:
            planned = manifest_actions.plan(request.user, manifest_data, where)
        else:
            planned = manifest_actions.apply(request.user, manifest_data, where)
        results = [manifest_actions.document(plan) for plan in planned]
        return Response({"dry_run": dry, "results": results})


class Export(APIView):
    @operation(
        "Export an endpoint as an InferenceEndpointConfig",
        {
            (200, "application/yaml"): OpenApiTypes.OBJECT,
            (200, "application/json"): OpenApiTypes.OBJECT,
        },
        404,
        parameters=[OpenApiParameter("output", str, enum=("yaml", "json"), default="yaml")],
    )
    def get(self, request: Request, name: str) -> Response | HttpResponse:
        """Imported manifests are exported unchanged; fields without a place in the schema are
        annotations.
        """
        whole = manifest_actions.export_endpoint(name)
        if request.query_params.get("output", "yaml") == "json":
            return Response(whole)
        return HttpResponse(documents.to_yaml(whole), content_type="application/yaml")
