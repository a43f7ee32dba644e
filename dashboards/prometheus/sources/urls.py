"""URLs mounted by console.urls under "/metrics-sources/"."""

from __future__ import annotations

from django.urls import path

from dashboards.prometheus.sources import views

app_name = "metrics_sources"
urlpatterns = [
    path("", views.sources, name="list"),
    path("add/", views.edit, name="add"),
    path("<slug:name>/", views.source, name="source"),
    path("<slug:name>/edit/", views.edit, name="edit"),
    path("<slug:name>/test/", views.test, name="test"),
    path("<slug:name>/remove/", views.remove, name="remove"),
]
