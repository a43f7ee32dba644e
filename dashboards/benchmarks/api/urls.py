"""REST URLs of benchmarks, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.benchmarks.api import views

app_name = "benchmarks-api"
_ALL = "endpoints/<endpoint:name>/benchmarks/"
_ONE = f"{_ALL}<uuid:run>/"
urlpatterns: list[URLPattern | URLResolver] = [
    path("benchmarks/", views.Benchmarks.as_view(), name="all"),
    path("benchmarks/compare/", views.Compare.as_view(), name="compare"),
    path(_ALL, views.EndpointBenchmarksView.as_view(), name="of_endpoint"),
    path(f"{_ALL}plan/", views.PlanView.as_view(), name="plan"),
    path(_ONE, views.BenchmarkView.as_view(), name="one"),
    path(f"{_ONE}abort/", views.Abort.as_view(), name="abort"),
    path(f"{_ONE}samples/", views.Samples.as_view(), name="samples"),
]
