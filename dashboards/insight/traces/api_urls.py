"""REST URLs, mounted below "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from dashboards.insight.traces import api

app_name = "traces-api"
_ALL = "endpoints/<endpoint:name>/traces/"
urlpatterns = [
    path(_ALL, api.Traces.as_view(), name="all"),
    path(f"{_ALL}export/", api.TraceExport.as_view(), name="export"),
    path(f"{_ALL}imports/", api.TraceImports.as_view(), name="imports"),
    path(f"{_ALL}imports/<str:trace>/", api.OneTraceImport.as_view(), name="import"),
]
