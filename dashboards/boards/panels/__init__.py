"""Declarations of all boards and their panels."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.boards.panels import cache, cost, overview, routing, workers
from dashboards.boards.panels.declarations import (
    RANGES,
    Board,
    Panel,
    PanelLine,
)
from dashboards.boards.panels.overview import (
    BY_CACHE,
    BY_ENDPOINT,
    L2,
    OUTCOME,
    REASONS_PANEL,
    REUSE,
    SHARE,
    SOURCES,
    TTFT,
)
from dashboards.boards.panels.styles import (
    GREY,
    RED,
)

FLEET: tuple[Panel, ...] = (BY_ENDPOINT, TTFT, SOURCES, REUSE, SHARE, REASONS_PANEL, L2)
ENDPOINT: tuple[Panel, ...] = (OUTCOME, TTFT, SOURCES, BY_CACHE, SHARE, REASONS_PANEL)

# In tab order; the first is the default.
BOARDS: Mapping[str, Board] = {
    board.key: board
    for board in (overview.BOARD, cache.BOARD, routing.BOARD, workers.BOARD, cost.BOARD)
}
FIRST = "overview"

__all__ = [
    "BOARDS",
    "ENDPOINT",
    "FIRST",
    "FLEET",
    "GREY",
    "RANGES",
    "REASONS_PANEL",
    "RED",
    "SHARE",
    "SOURCES",
    "TTFT",
    "Panel",
    "PanelLine",
]
