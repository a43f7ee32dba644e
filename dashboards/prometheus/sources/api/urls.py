"""REST URLs mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from dashboards.prometheus.sources.api import views

app_name = "metrics-sources-api"
urlpatterns = [
    path("metrics-sources/", views.Sources.as_view(), name="sources"),
    path("metrics-sources/<slug:name>/", views.SourceView.as_view(), name="source"),
    path("metrics-sources/<slug:name>/test/", views.Test.as_view(), name="test"),
]
