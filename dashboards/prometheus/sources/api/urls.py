"""REST URLs mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.resources.rest import make_urls
from dashboards.prometheus.sources.api import views

app_name = "metrics-sources-api"
urlpatterns = [
    *make_urls(views.SOURCES),
    path("metrics-sources/<slug:name>/test/", views.Test.as_view(), name="test"),
]
