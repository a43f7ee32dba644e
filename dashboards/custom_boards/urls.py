"""Page routes of custom boards, mounted by console.urls under "dashboards/custom/"."""

from __future__ import annotations

from django.urls import path

from dashboards.custom_boards import changes, views

app_name = "custom_boards"
urlpatterns = [
    path("", views.board_list, name="list"),
    path("new/", changes.new, name="new"),
    path("import/", changes.import_board, name="import"),
    path("pin/", changes.pin, name="pin"),
    path("<uuid:board_id>/", views.board, name="board"),
    path("<uuid:board_id>/data", views.board_data, name="data"),
    path("<uuid:board_id>/csv", views.query_csv, name="csv"),
    path("<uuid:board_id>/export.json", views.export, name="export"),
    path("<uuid:board_id>/settings/", changes.settings, name="settings"),
    path("<uuid:board_id>/delete/", changes.delete, name="delete"),
    path("<uuid:board_id>/arrange/", changes.arrange, name="arrange"),
    path("<uuid:board_id>/queries/new/", changes.new_query, name="new_query"),
    path("<uuid:board_id>/panels/<slug:panel>/", changes.edit_panel, name="panel"),
]
