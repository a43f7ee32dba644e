"""Declarations of all boards and their panels."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.boards.panels import cache, cost, overview, routing, workers
from dashboards.boards.panels.declarations import RANGES, Board, Panel
from dashboards.boards.panels.overview import (
    BY_ENDPOINT,
    L2,
    REASONS_PANEL,
    REUSE,
    SHARE,
    SOURCES,
    TTFT,
)

# On the Overview page.
FLEET: tuple[Panel, ...] = (BY_ENDPOINT, TTFT, SOURCES, REUSE, SHARE, REASONS_PANEL, L2)

# In tab order; the first is the default.
BOARDS: Mapping[str, Board] = {
    board.key: board
    for board in (overview.BOARD, cache.BOARD, routing.BOARD, workers.BOARD, cost.BOARD)
}
FIRST = "overview"

__all__ = ["BOARDS", "FIRST", "FLEET", "RANGES", "Panel"]
