"""REST of silences, receivers, routes and deliveries, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.notify.api import silences

app_name = "notify-api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("silences/", silences.Silences.as_view(), name="silences"),
    path("silences/<uuid:silence>/", silences.One.as_view(), name="silence"),
]
