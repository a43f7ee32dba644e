"""Pages of this room, mounted by console.urls under "/routing/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

app_name = "routing"
urlpatterns: list[URLPattern | URLResolver] = []
