"""Pages of this room, mounted by console.urls under "/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards import targets, views_boards

app_name = "dashboards"
urlpatterns: list[URLPattern | URLResolver] = [
    path("dashboards/", views_boards.fleet, name="fleet"),
    path("dashboards/data", views_boards.fleet_data, name="fleet_data"),
    path("dashboards/endpoints/<slug:name>/", views_boards.endpoint, name="endpoint"),
    path("dashboards/endpoints/<slug:name>/data", views_boards.endpoint_data, name="endpoint_data"),
    path("prometheus/targets", targets.targets, name="targets"),
]
