"""Export boards as Grafana dashboards, with alert and recording rules.

Panels, units, colours and expressions derive from dashboards.boards.panels and
dashboards.boards.queries. Dashboards name no endpoint; a Grafana variable selects it.
"""

from dashboards.grafana.export.bundle import ExportFile, board, files, zipped
from dashboards.grafana.export.dashboard import Exported, dashboard, exported, named

__all__ = ["ExportFile", "Exported", "board", "dashboard", "exported", "files", "named", "zipped"]
