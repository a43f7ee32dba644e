"""URLs mounted by console.urls under "/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from dashboards.alerts.settings.pages import alerts
from dashboards.costs.pages import calibrations, endpoints
from dashboards.insight.canary import views as canary
from dashboards.insight.misses import pages as misses
from dashboards.overview import views as overview_views
from dashboards.prometheus import targets

app_name = "dashboards"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview_views.overview, name="overview"),
    path("overview/data", overview_views.overview_data, name="overview_data"),
    path("overview/now", overview_views.now, name="now"),
    path("overview/money", overview_views.money, name="money"),
    path("overview/guide/", overview_views.guide, name="guide"),
    path("overview/numbers", overview_views.numbers, name="numbers"),
    path("overview/proof/", overview_views.start_proof, name="start_proof"),
    path("overview/proof/<endpoint:name>/", overview_views.proof, name="proof"),
    path("dashboards/", include("dashboards.boards.urls")),
    path("dashboards/alerts", alerts.fleet_part, name="fleet_alerts"),
    path("dashboards/alerts.yml", alerts.rule_file, name="alert_rules"),
    path(
        "dashboards/endpoints/<endpoint:name>/numbers",
        overview_views.endpoint_numbers,
        name="endpoint_numbers",
    ),
    path(
        "dashboards/endpoints/<endpoint:name>/key-figures",
        overview_views.endpoint_key_figures,
        name="endpoint_key_figures",
    ),
    path("dashboards/endpoints/<endpoint:name>/alerts", alerts.endpoint_part, name="alerts"),
    path("costs/", endpoints.costs, name="costs"),
    path("costs/table.csv", endpoints.table, name="costs_csv"),
    path("costs/misses/", misses.groups, name="miss_groups"),
    path("costs/calibration/", calibrations.calibrations, name="calibrations"),
    path("costs/<endpoint:name>/calibrate/", calibrations.calibrate, name="calibrate"),
    path("costs/<endpoint:name>/auto-calibration/", calibrations.switch, name="auto_calibration"),
    path("routing/endpoints/<endpoint:name>/misses/", misses.page, name="misses"),
    path("routing/endpoints/<endpoint:name>/canary/", canary.page, name="canary"),
    path(
        "routing/endpoints/<endpoint:name>/canary/figures/", canary.figures, name="canary_figures"
    ),
    path("routing/endpoints/<endpoint:name>/canary/stop/", canary.stop, name="canary_stop"),
    path(
        "routing/endpoints/<endpoint:name>/canary/promote/", canary.promote, name="canary_promote"
    ),
    path("grafana/", include("dashboards.grafana.urls")),
    path("prometheus/targets", targets.targets, name="targets"),
    path("prometheus/console", targets.own_metrics, name="own_metrics"),
]
