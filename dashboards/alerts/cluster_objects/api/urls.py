"""REST routes of cluster alert objects, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.alerts.cluster_objects.api import views

app_name = "alert-objects-api"
_ONE = "alert-clusters/<slug:name>/"
urlpatterns: list[URLPattern | URLResolver] = [
    path("alert-clusters/", views.ClusterAlertsListView.as_view(), name="all"),
    path(_ONE, views.ClusterAlertsView.as_view(), name="one"),
    path(f"{_ONE}check/", views.ClusterAlertsCheckView.as_view(), name="check"),
]
