"""Page routes of cluster alert objects, mounted by console.urls under "alerts/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.alerts.cluster_objects import views

app_name = "alert_objects"
urlpatterns: list[URLPattern | URLResolver] = [
    path("clusters/", views.index, name="list"),
    path("clusters/<slug:name>/", views.cluster, name="cluster"),
    path("clusters/<slug:name>/check/", views.check, name="check"),
]
