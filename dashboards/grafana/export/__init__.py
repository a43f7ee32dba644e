"""Export boards as Grafana dashboards, with alert and recording rules."""

from dashboards.grafana.export.bundle import ExportFile, board, make_files, make_zip
from dashboards.grafana.export.dashboard import (
    DashboardExport,
    find_export,
    list_exports,
    make_dashboard,
)

__all__ = [
    "DashboardExport",
    "ExportFile",
    "board",
    "find_export",
    "list_exports",
    "make_dashboard",
    "make_files",
    "make_zip",
]
