"""Location and URL query of a board: time range, refresh interval, comparison, worker, panel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from console.core.errors import Problem
from console.core.local_time import format_clock, get_zone_name, localize, parse_local
from dashboards.boards.panels.declarations import DEFAULT_RANGE, RANGES, Board, Panel, Range
from dashboards.boards.queries import Scope

CUSTOM = "custom"
REFRESHES = (0, 5, 10, 30, 60)
PREVIOUS = "previous"
SHORTEST_S, LONGEST_S = 60, 366 * 86400
# Step sizes; a line has 180 to 360 points, or one per scrape.
_STEPS = (
    *(5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900),
    *(1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400),
)
_POINTS = 360
_MAX_NAME_LENGTH = 253
_MAX_ID_LENGTH = 60


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """`until`: end of a fixed range in epoch seconds; None means now. `refresh` in seconds: 0
    never, None the range's default. `panel`: the only panel to show, "" for all.
    """

    range: Range = DEFAULT_RANGE
    until: int | None = None
    refresh: int | None = None
    compare: bool = False
    worker: str = ""
    panel: str = ""

    @property
    def fixed(self) -> bool:
        return self.until is not None

    @property
    def poll_s(self) -> int:
        if self.refresh is not None:
            return self.refresh
        return 0 if self.fixed else self.range.poll_s

    def end(self, now: float) -> float:
        return now if self.until is None else min(float(self.until), now)

    def query(self, **changes: Any) -> str:
        """Return the URL query of this object with `changes` applied."""
        look = replace(self, **changes)
        pairs: dict[str, Any] = {}
        if look.until is not None:
            pairs |= {"from": look.until - look.range.length_s, "to": look.until}
        else:
            pairs["range"] = look.range.key
        if look.refresh is not None:
            pairs["refresh"] = look.refresh or "off"
        if look.compare:
            pairs["compare"] = PREVIOUS
        if look.worker:
            pairs["worker"] = look.worker
        if look.panel:
            pairs["panel"] = look.panel
        return urlencode(pairs)

    def during(self, start: int, end: int) -> BoardQuery:
        return replace(self, range=make_fixed_range(start, end), until=end)


@dataclass(frozen=True, slots=True)
class BoardLocation:
    """A board of one endpoint, or of all endpoints visible to the viewer."""

    board: Board
    endpoint: str = ""

    @property
    def panels(self) -> tuple[Panel, ...]:
        return self.board.panels(one=bool(self.endpoint))

    def shown(self, look: BoardQuery) -> tuple[Panel, ...]:
        return tuple(panel for panel in self.panels if look.panel in ("", panel.id))

    def scope(self, scope: Scope, look: BoardQuery) -> Scope:
        return replace(scope, worker=look.worker) if self.endpoint else scope


def parse_query(given: Mapping[str, Any], now: float) -> tuple[BoardQuery, tuple[Problem, ...]]:
    """Parse a query. Invalid parameters are reported as problems and ignored."""
    problems: list[Problem] = []
    look = _parse_times(given, now, problems)
    refresh = given.get("refresh", "")
    allowed = {"off" if not s else str(s): s for s in REFRESHES}
    if refresh and refresh not in allowed:
        problems.append(_make_problem("refresh", refresh, f"Choose one of {', '.join(allowed)}."))
    compare = given.get("compare", "")
    if compare and compare != PREVIOUS:
        problems.append(_make_problem("compare", compare, f'Use "{PREVIOUS}" or omit it.'))
    return (
        replace(
            look,
            refresh=allowed.get(refresh),
            compare=compare == PREVIOUS,
            worker=_read_text(given, "worker", _MAX_NAME_LENGTH),
            panel=_read_text(given, "panel", _MAX_ID_LENGTH),
        ),
        tuple(problems),
    )


def make_fixed_range(start: int, end: int) -> Range:
    length = end - start
    step = next((step for step in _STEPS if length <= step * _POINTS), _STEPS[-1])
    begin, zone = format_clock(start), get_zone_name(localize(end))
    label = f"{begin.removesuffix(f' {zone}')} to {format_clock(end)}"
    return Range(CUSTOM, label, max(length, step), step, 0)


def _parse_times(given: Mapping[str, Any], now: float, problems: list[Problem]) -> BoardQuery:
    key = given.get("range", "")
    if given.get("from") or given.get("to"):
        return _parse_fixed_range(given, now, problems)
    if key and key not in RANGES:
        remedy = f"Choose one of {', '.join(RANGES)}, or set from and to."
        problems.append(_make_problem("range", key, remedy))
    return BoardQuery(RANGES.get(key, DEFAULT_RANGE))


def _parse_fixed_range(given: Mapping[str, Any], now: float, problems: list[Problem]) -> BoardQuery:
    ends: list[int] = []
    for field in ("from", "to"):
        moment = _parse_moment(given.get(field, ""))
        if moment is None and (field == "from" or given.get(field)):
            remedy = "Enter epoch seconds or a time such as 2026-11-21T10:00Z."
            problems.append(_make_problem(field, given.get(field, ""), remedy))
            return BoardQuery()
        ends.append(int(now) if moment is None else min(moment, int(now)))
    start, end = ends
    if not SHORTEST_S <= end - start <= LONGEST_S:
        remedy = "Choose a range of 1 minute to 1 year that does not start in the future."
        value = f"{given.get('from', '')} to {given.get('to', '')}"
        problems.append(
            Problem("from", value, f"Invalid time range: {value[:80]}.", remedy, "invalid")
        )
        return BoardQuery()
    return BoardQuery().during(start, end)


def _parse_moment(text: str) -> int | None:
    """Parse epoch seconds or ISO 8601; a time without an offset is in the reader's zone."""
    try:
        return int(text) if text.lstrip("-").isdecimal() else parse_local(text)
    except (ValueError, OverflowError):
        return None


def _read_text(given: Mapping[str, Any], field: str, longest: int) -> str:
    return str(given.get(field, "")).replace("\0", "")[:longest]


def _make_problem(field: str, value: str, remedy: str) -> Problem:
    return Problem(
        field, value[:80], f'Invalid value for {field}: "{value[:80]}".', remedy, "invalid"
    )
