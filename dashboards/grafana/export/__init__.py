"""Export boards as Grafana dashboards, with alert and recording rules."""

from dashboards.grafana.export.bundle import ExportFile, board, files, zipped
from dashboards.grafana.export.dashboard import Exported, dashboard, exported, named

__all__ = ["ExportFile", "Exported", "board", "dashboard", "exported", "files", "named", "zipped"]
