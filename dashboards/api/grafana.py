"""/api/v1/grafana/: boards as Grafana dashboards, singly or as one archive."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.serializers import ErrorSerializer
from dashboards.grafana import views
from dashboards.grafana.export import dashboard as export
from dashboards.grafana.views import console_url

_described = partial(extend_schema, tags=["grafana"])


class DashboardSerializer(serializers.Serializer[Any]):
    uid = serializers.CharField(help_text="Stable: an import replaces the previous one.")
    title = serializers.CharField()
    board = serializers.CharField(source="board.key")
    scope = serializers.ChoiceField(choices=("fleet", "endpoint"))
    panels = serializers.IntegerField(source="panel_count")


class FileSerializer(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="Path inside the export.")
    text = serializers.CharField()
    media_type = serializers.CharField()


class ExportSerializer(serializers.Serializer[Any]):
    files = FileSerializer(many=True)


class Dashboards(GenericAPIView[Any]):
    serializer_class = DashboardSerializer

    @_described(summary="List Grafana dashboards", responses=DashboardSerializer(many=True))
    def get(self, _request: Request) -> Response:
        """Dashboards for many endpoints first, in tab order."""
        page = self.paginate_queryset(export.list_exports()) or []
        return self.get_paginated_response(DashboardSerializer(page, many=True).data)


class DashboardView(APIView):
    @_described(
        summary="Read a Grafana dashboard",
        responses={200: OpenApiTypes.OBJECT, 404: ErrorSerializer},
    )
    def get(self, request: Request, uid: str) -> Response:
        """JSON for Grafana's import. Links lead back to the address of this request."""
        exported = export.find_export(uid)
        if exported is None:
            raise Http404(uid)
        return Response(export.make_dashboard(exported, console_url(request)))


class Export(APIView):
    @_described(summary="Export boards and rules", responses=ExportSerializer)
    def get(self, request: Request) -> Response:
        """All dashboards, alert rules, recording rules and Grafana provisioning.

        Customized rules need a global role, because they may name other teams' endpoints; other
        users get the default rules.
        """
        exports = views.files(request.user, console_url(request))
        return Response({"files": [asdict(file) for file in exports]})
