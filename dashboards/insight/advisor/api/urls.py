"""REST URLs of advice, mounted below "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from dashboards.insight.advisor.api import views

app_name = "advisor-api"
urlpatterns = [
    path("endpoints/<endpoint:name>/advice/", views.LatestAdvice.as_view(), name="advice"),
    path("endpoints/<endpoint:name>/advice/cancel/", views.Cancel.as_view(), name="cancel"),
]
