"""REST URLs, mounted below "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from cachetier.api import views
from console.resources.rest import make_urls

app_name = "cachetier-api"
urlpatterns = [
    *make_urls(views.TIERS),
    path("cache-tiers/<slug:name>/contents/", views.Contents.as_view(), name="contents"),
    path("cache-tiers/<slug:name>/flush/", views.Flush.as_view(), name="flush"),
]
