"""URLs of the Grafana export, mounted by dashboards.urls under "grafana/"."""

from __future__ import annotations

from django.urls import path

from dashboards.grafana import views

urlpatterns = [
    path("", views.page, name="grafana"),
    path("emberline-grafana.zip", views.everything, name="grafana_zip"),
    path("dashboards/<str:uid>.json", views.board, name="grafana_board"),
    path("recording.yml", views.recording_rules, name="recording_rules"),
]
