"""REST of this room, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.api import costs, views

app_name = "dashboards-api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("endpoints/<endpoint:name>/proof/", views.Proof.as_view(), name="proof"),
    path("costs/", costs.CostsView.as_view(), name="costs"),
    path(
        "endpoints/<endpoint:name>/calibration/",
        costs.CalibrationView.as_view(),
        name="calibration",
    ),
]
