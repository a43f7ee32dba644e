"""Cluster pages, mounted by console.urls under "/clusters/"."""

from __future__ import annotations

from django.urls import path

from console.clusters import views

app_name = "clusters"
urlpatterns = [
    path("", views.clusters, name="list"),
    path("add/", views.edit, name="add"),
    path("contexts/", views.contexts, name="contexts"),
    path("<slug:name>/", views.cluster, name="cluster"),
    path("<slug:name>/edit/", views.edit, name="edit"),
    path("<slug:name>/check/", views.check, name="check"),
    path("<slug:name>/remove/", views.remove, name="remove"),
]
