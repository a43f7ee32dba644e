"""REST routes of clusters, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.clusters.api import views
from console.resources.rest import make_urls

app_name = "clusters-api"
urlpatterns = [
    *make_urls(views.CLUSTERS),
    path("clusters/<slug:name>/check/", views.ClusterCheckView.as_view(), name="check"),
    path("clusters/<slug:name>/role/", views.RoleView.as_view(), name="role"),
]
