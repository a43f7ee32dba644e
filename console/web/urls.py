"""Pages of the shell, mounted by console.urls at the root."""

from __future__ import annotations

from django.urls import path

from console.web import saved_filters, views

app_name = "web"
urlpatterns = [
    path("search/", views.search, name="search"),
    path("saved-filters/", saved_filters.save, name="saved-filters"),
    path("settings/", views.settings, name="settings"),
    path("about/", views.about, name="about"),
]
