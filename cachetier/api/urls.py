"""REST URLs, mounted below "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from cachetier.api import views

app_name = "cachetier-api"
urlpatterns = [
    path("cache-tiers/", views.Tiers.as_view(), name="tiers"),
    path("cache-tiers/<slug:name>/", views.Tier.as_view(), name="tier"),
    path("cache-tiers/<slug:name>/contents/", views.Contents.as_view(), name="contents"),
    path("cache-tiers/<slug:name>/flush/", views.Flush.as_view(), name="flush"),
]
