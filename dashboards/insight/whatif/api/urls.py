"""REST URLs of what-if analyses, mounted below "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from dashboards.insight.whatif.api import views

app_name = "whatif-api"
_ALL = "endpoints/<endpoint:name>/what-if/"
_ONE = f"{_ALL}<uuid:run>/"
urlpatterns = [
    path(_ALL, views.WhatIfs.as_view(), name="all"),
    path(f"{_ALL}present/", views.Present.as_view(), name="present"),
    path(_ONE, views.OneWhatIf.as_view(), name="one"),
    path(f"{_ONE}cancel/", views.Cancel.as_view(), name="cancel"),
]
