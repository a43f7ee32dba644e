"""URLs of boards, mounted by dashboards.urls under "dashboards/" in the namespace `dashboards`."""

from __future__ import annotations

from django.urls import path

from dashboards.boards import answers, views

_ONE = "endpoints/<endpoint:name>"
urlpatterns = [
    path("", views.fleet, name="fleet"),
    path("data", answers.board_data, name="fleet_data"),
    path("csv", answers.board_csv, name="fleet_csv"),
    path("<board:board>/", views.fleet, name="fleet_board"),
    path("<board:board>/data", answers.board_data, name="fleet_board_data"),
    path("<board:board>/csv", answers.board_csv, name="fleet_board_csv"),
    path(f"{_ONE}/", views.endpoint, name="endpoint"),
    path(f"{_ONE}/data", answers.board_data, name="endpoint_data"),
    path(f"{_ONE}/csv", answers.board_csv, name="endpoint_csv"),
    path(f"{_ONE}/<board:board>/", views.endpoint, name="endpoint_board"),
    path(f"{_ONE}/<board:board>/data", answers.board_data, name="endpoint_board_data"),
    path(f"{_ONE}/<board:board>/csv", answers.board_csv, name="endpoint_board_csv"),
]
