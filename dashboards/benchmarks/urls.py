"""URLs of benchmarks, mounted by console.urls under "benchmarks/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.benchmarks import views

app_name = "benchmarks"
_ONE = "endpoints/<endpoint:name>/<uuid:run>/"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.index, name="index"),
    path("compare/", views.compare, name="compare"),
    path("endpoints/<endpoint:name>/", views.endpoint, name="endpoint"),
    path("endpoints/<endpoint:name>/new/", views.new, name="new"),
    path("endpoints/<endpoint:name>/outlook/", views.outlook, name="outlook"),
    path(_ONE, views.run, name="run"),
    path(f"{_ONE}abort/", views.abort, name="abort"),
    path(f"{_ONE}delete/", views.delete, name="delete"),
    path(f"{_ONE}samples.csv", views.as_csv, name="csv"),
    path(f"{_ONE}result.json", views.as_json, name="json"),
]
