"""Pages of this room, mounted by console.urls under "/cache/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

app_name = "cachetier"
urlpatterns: list[URLPattern | URLResolver] = []
