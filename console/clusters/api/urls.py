"""REST routes of clusters, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.clusters.api import views

app_name = "clusters-api"
urlpatterns = [
    path("clusters/", views.ClusterListView.as_view(), name="clusters"),
    path("clusters/<slug:name>/", views.ClusterView.as_view(), name="cluster"),
    path("clusters/<slug:name>/check/", views.ClusterCheckView.as_view(), name="check"),
    path("clusters/<slug:name>/role/", views.RoleView.as_view(), name="role"),
]
