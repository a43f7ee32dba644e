"""Pages of this room, mounted by console.urls under "/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from dashboards import targets, views_alerts, views_boards, views_costs, views_overview

app_name = "dashboards"
_FLEET = "dashboards/<board:board>"
_ONE = "dashboards/endpoints/<endpoint:name>"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", views_overview.overview, name="overview"),
    path("overview/data", views_overview.overview_data, name="overview_data"),
    path("overview/now", views_overview.now, name="now"),
    path("overview/money", views_overview.money, name="money"),
    path("overview/guide/", views_overview.guide, name="guide"),
    path("overview/numbers", views_overview.numbers, name="numbers"),
    path("overview/proof/", views_overview.start_proof, name="start_proof"),
    path("overview/proof/<endpoint:name>/", views_overview.proof, name="proof"),
    path("dashboards/", views_boards.fleet, name="fleet"),
    path("dashboards/data", views_boards.fleet_data, name="fleet_data"),
    path(f"{_FLEET}/", views_boards.fleet, name="fleet_board"),
    path(f"{_FLEET}/data", views_boards.fleet_data, name="fleet_board_data"),
    path(f"{_ONE}/", views_boards.endpoint, name="endpoint"),
    path(f"{_ONE}/data", views_boards.endpoint_data, name="endpoint_data"),
    path(f"{_ONE}/<board:board>/", views_boards.endpoint, name="endpoint_board"),
    path(f"{_ONE}/<board:board>/data", views_boards.endpoint_data, name="endpoint_board_data"),
    path("dashboards/csv", views_boards.fleet_csv, name="fleet_csv"),
    path(f"{_FLEET}/csv", views_boards.fleet_csv, name="fleet_board_csv"),
    path(f"{_ONE}/csv", views_boards.endpoint_csv, name="endpoint_csv"),
    path(f"{_ONE}/<board:board>/csv", views_boards.endpoint_csv, name="endpoint_board_csv"),
    path("dashboards/alerts", views_alerts.fleet, name="fleet_alerts"),
    path("dashboards/alerts.yml", views_alerts.rules, name="alert_rules"),
    path(
        "dashboards/endpoints/<endpoint:name>/numbers",
        views_overview.endpoint_numbers,
        name="endpoint_numbers",
    ),
    path("dashboards/endpoints/<endpoint:name>/alerts", views_alerts.endpoint, name="alerts"),
    path("costs/", views_costs.costs, name="costs"),
    path("costs/table.csv", views_costs.table, name="costs_csv"),
    path("costs/<endpoint:name>/calibrate/", views_costs.calibrate, name="calibrate"),
    path("grafana/", include("dashboards.urls_grafana")),
    path("prometheus/targets", targets.targets, name="targets"),
    path("prometheus/console", targets.own, name="own_metrics"),
]
