"""Pages of alerts and their rules, mounted by console.urls under "alerts/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.alerting import views

app_name = "alerting"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.firing, name="firing"),
    path("rules/", views.rules, name="rules"),
]
