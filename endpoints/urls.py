"""Pages of this room, mounted by console.urls under "/endpoints/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

app_name = "endpoints"
urlpatterns: list[URLPattern | URLResolver] = []
