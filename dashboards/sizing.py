"""How fine a range is drawn, so that the board of a large fleet is there at once, too.

Promises steps as a range has them while few targets are scraped, else longer ones. What a board
costs Prometheus grows with targets times points: by some 150 microseconds of a processor for each
where samples are read, by 90 where rules have kept what is asked for (queries.kept).
"""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels import Range
from dashboards.boards.queries import Scope
from dashboards.boards.results import resolution
from dashboards.prometheus.http.client import Asker

READ_AT_MOST = 10_000  # points of all targets, in steps of less than what rules keep
KEPT_AT_MOST = 20_000
_KEPT_S = 60
_FEWEST = 12  # points of a line
_STEPS_S = (
    *(10, 15, 20, 30, 60, 120, 300, 600, 900),
    *(1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400),
)


def fitting(asker: Asker, scope: Scope, chosen: Range, now: float) -> Range:
    """The range, in steps that suit what is scraped."""
    targets = resolution.targets(asker, scope, now)
    step_s = chosen.step_s
    for longer_s in _STEPS_S:
        points = chosen.length_s // step_s
        if points * targets <= (READ_AT_MOST if step_s < _KEPT_S else KEPT_AT_MOST):
            break
        if longer_s > step_s and chosen.length_s // longer_s >= _FEWEST:
            step_s = longer_s
    return replace(chosen, step_s=step_s)
