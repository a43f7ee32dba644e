"""REST URLs mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from console.resources.rest import make_urls
from dashboards.api import boards, custom_boards, grafana, measurements
from dashboards.insight.canary import api as canary
from dashboards.insight.misses import api as misses

app_name = "dashboards-api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("endpoints/<endpoint:name>/proof/", measurements.Proof.as_view(), name="proof"),
    path("boards/", boards.Boards.as_view(), name="boards"),
    path("boards/<board:board>/", boards.BoardView.as_view(), name="board"),
    *make_urls(custom_boards.BOARDS),
    path(
        "custom-boards/<uuid:board_id>/export/",
        custom_boards.ExportView.as_view(),
        name="custom_board_export",
    ),
    path("grafana/dashboards/", grafana.Dashboards.as_view(), name="grafana"),
    path("grafana/dashboards/<str:uid>/", grafana.DashboardView.as_view(), name="grafana_board"),
    path("grafana/export/", grafana.Export.as_view(), name="grafana_export"),
    path("costs/", measurements.CostsView.as_view(), name="costs"),
    path(
        "costs/auto-calibration/",
        measurements.SwitchView.as_view(),
        name="auto_calibration_default",
    ),
    path(
        "endpoints/<endpoint:name>/auto-calibration/",
        measurements.EndpointSwitchView.as_view(),
        name="auto_calibration",
    ),
    path(
        "endpoints/<endpoint:name>/calibration/",
        measurements.CalibrationView.as_view(),
        name="calibration",
    ),
    path("misses/", misses.AllMisses.as_view(), name="all_misses"),
    path("endpoints/<endpoint:name>/misses/", misses.Misses.as_view(), name="misses"),
    path("endpoints/<endpoint:name>/canary/", canary.CanaryView.as_view(), name="canary"),
    path(
        "endpoints/<endpoint:name>/canary/promote/",
        canary.CanaryPromotion.as_view(),
        name="canary_promotion",
    ),
]
