"""REST of this room, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

app_name = "dashboards-api"
urlpatterns: list[URLPattern | URLResolver] = []
