"""Instance type pages, mounted under "/instance-types/"."""

from __future__ import annotations

from django.urls import path

from console.catalogue import views

app_name = "catalogue"
urlpatterns = [
    path("", views.index, name="list"),
    path("new/", views.edit, name="new"),
    path("<str:name>/edit/", views.edit, name="edit"),
    path("<str:name>/remove/", views.remove, name="remove"),
]
