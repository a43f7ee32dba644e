"""Boards and rules for a Grafana of one's own, mounted by dashboards.urls under "grafana/"."""

from __future__ import annotations

from django.urls import path

from dashboards import views_grafana

urlpatterns = [
    path("", views_grafana.page, name="grafana"),
    path("emberline-grafana.zip", views_grafana.everything, name="grafana_zip"),
    path("dashboards/<str:uid>.json", views_grafana.board, name="grafana_board"),
    path("recording.yml", views_grafana.recording_rules, name="recording_rules"),
]
