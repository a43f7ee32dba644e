"""REST of this room, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.api import views

app_name = "dashboards-api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("endpoints/<slug:name>/proof/", views.Proof.as_view(), name="proof"),
]
