"""Page URLs, mounted below "/routing/"."""

from __future__ import annotations

from django.urls import path

from dashboards.insight.traces import pages

app_name = "traces"
_ALL = "endpoints/<endpoint:name>/traces/"
urlpatterns = [
    path(_ALL, pages.show_traces, name="endpoint"),
    path(f"{_ALL}switch/", pages.switch, name="switch"),
    path(f"{_ALL}export/", pages.export, name="export"),
    path(f"{_ALL}import/", pages.import_file, name="import"),
    path(f"{_ALL}delete/", pages.delete, name="delete"),
]
