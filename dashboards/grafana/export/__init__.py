"""The boards as Grafana reads them, with the rules beside them.

Promises that nothing is kept twice: every panel, unit, colour and expression is made of the
declarations in dashboards.boards.panels and dashboards.boards.queries, so that a new board is in the next export.
Names no endpoint: who looks chooses it in Grafana. Pure; knows neither Django nor HTTP.
"""

from dashboards.grafana.export.bundle import ExportFile, board, files, zipped
from dashboards.grafana.export.dashboard import Exported, dashboard, exported, named

__all__ = ["ExportFile", "Exported", "board", "dashboard", "exported", "files", "named", "zipped"]
