"""Pages of the shell, mounted by console.urls at the root."""

from __future__ import annotations

from django.urls import path

from console.web import views

app_name = "web"
urlpatterns = [
    path("search/", views.search, name="search"),
    path("settings/", views.settings, name="settings"),
    path("about/", views.about, name="about"),
]
