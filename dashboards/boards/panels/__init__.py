"""Declarations of all boards and their panels."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.boards.panels import cache, cost, overview, routing, workers
from dashboards.boards.panels.declarations import (
    DEFAULT_RANGE,
    RANGES,
    Board,
    Documented,
    Factor,
    Panel,
    PanelLine,
    PanelSection,
    Range,
    Style,
    Unit,
)
from dashboards.boards.panels.exporters import EXPORTERS, Exporter
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
    BLUE,
    BROWN,
    CACHE_STATES,
    DASHES,
    GREEN,
    GREY,
    ORANGE,
    OUTCOMES,
    PURPLE,
    QUANTILES,
    REASONS,
    RED,
    SKY,
    TIERS,
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
    "BLUE",
    "BOARDS",
    "BROWN",
    "BY_CACHE",
    "BY_ENDPOINT",
    "CACHE_STATES",
    "DASHES",
    "DEFAULT_RANGE",
    "ENDPOINT",
    "EXPORTERS",
    "FIRST",
    "FLEET",
    "GREEN",
    "GREY",
    "L2",
    "ORANGE",
    "OUTCOME",
    "OUTCOMES",
    "PURPLE",
    "QUANTILES",
    "RANGES",
    "REASONS",
    "REASONS_PANEL",
    "RED",
    "REUSE",
    "SHARE",
    "SKY",
    "SOURCES",
    "TIERS",
    "TTFT",
    "Board",
    "Documented",
    "Exporter",
    "Factor",
    "Panel",
    "PanelLine",
    "PanelSection",
    "Range",
    "Style",
    "Unit",
]
