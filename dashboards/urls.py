"""Pages of this room, mounted by console.urls under "/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

app_name = "dashboards"
urlpatterns: list[URLPattern | URLResolver] = []
