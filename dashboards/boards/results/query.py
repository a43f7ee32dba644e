"""What of a board is looked at: which times, how often asked again, compared or not, whose worker.

Promises that the query of the address and a `Look` are one another's: `Look.read` takes what a
person, a form or a link says, `Look.query` gives the shortest address that shows it again. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from console.core.errors import Problem
from dashboards.boards.panels import DEFAULT_RANGE, RANGES, Range

CUSTOM = "custom"
REFRESHES = (0, 5, 10, 30, 60)
PREVIOUS = "previous"
SHORTEST_S, LONGEST_S = 60, 366 * 86400
# What a point may stand for; a line then has 180 to 360 of them, or one a scrape.
_STEPS = (
    *(5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900),
    *(1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400),
)
_POINTS = 360
_NAME = 253  # of a worker, as Kubernetes allows
_ID = 60  # of a panel


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """`until` is the end of a fixed time, in epoch seconds; None: it ends now, always. `refresh`:
    seconds, 0 never, None as suits the range. `panel`: the only one shown, "" for all."""

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
        """Seconds between two questions; 0: only one."""
        if self.refresh is not None:
            return self.refresh
        return 0 if self.fixed else self.range.poll_s

    def end(self, now: float) -> float:
        return now if self.until is None else min(float(self.until), now)

    def query(self, **changes: Any) -> str:
        """The address' query of this look, or of it with `changes`."""
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
        """The same of other, fixed times."""
        return replace(self, range=custom(start, end), until=end)


def read(given: Mapping[str, Any], now: float) -> tuple[BoardQuery, tuple[Problem, ...]]:
    """`given`: a query. What is not understood is a problem, and as if it were not said."""
    problems: list[Problem] = []
    look = _times(given, now, problems)
    refresh = given.get("refresh", "")
    allowed = {"off" if not s else str(s): s for s in REFRESHES}
    if refresh and refresh not in allowed:
        problems.append(_odd("refresh", refresh, f"Choose one of {', '.join(allowed)}."))
    compare = given.get("compare", "")
    if compare and compare != PREVIOUS:
        problems.append(_odd("compare", compare, f'Say "{PREVIOUS}" or leave it out.'))
    return (
        replace(
            look,
            refresh=allowed.get(refresh),
            compare=compare == PREVIOUS,
            worker=_text(given, "worker", _NAME),
            panel=_text(given, "panel", _ID),
        ),
        tuple(problems),
    )


def custom(start: int, end: int) -> Range:
    """Fixed times as a range, in steps that divide well."""
    length = end - start
    step = next((step for step in _STEPS if length <= step * _POINTS), _STEPS[-1])
    label = f"{_clock(start)} to {_clock(end)} UTC"
    return Range(CUSTOM, label, max(length, step), step, 0)


def _times(given: Mapping[str, Any], now: float, problems: list[Problem]) -> BoardQuery:
    key = given.get("range", "")
    if given.get("from") or given.get("to"):
        return _between(given, now, problems)
    if key and key not in RANGES:
        remedy = f"Choose one of {', '.join(RANGES)}, or give from and to."
        problems.append(_odd("range", key, remedy))
    return BoardQuery(RANGES.get(key, DEFAULT_RANGE))


def _between(given: Mapping[str, Any], now: float, problems: list[Problem]) -> BoardQuery:
    ends: list[int] = []
    for field in ("from", "to"):
        moment = _moment(given.get(field, ""))
        if moment is None and (field == "from" or given.get(field)):
            remedy = "Give seconds since 1970, or a time in UTC such as 2026-11-21T10:00."
            problems.append(_odd(field, given.get(field, ""), remedy))
            return BoardQuery()
        ends.append(int(now) if moment is None else min(moment, int(now)))
    start, end = ends
    if not SHORTEST_S <= end - start <= LONGEST_S:
        remedy = "Let it begin a minute to a year before its end, and not in the future."
        value = f"{given.get('from', '')} to {given.get('to', '')}"
        problems.append(Problem("from", value, "This is no span of time.", remedy, "invalid"))
        return BoardQuery()
    return BoardQuery().during(start, end)


def _moment(text: str) -> int | None:
    """Epoch seconds of such seconds, or of a time in UTC as a browser's field writes it."""
    try:
        return int(text) if text.lstrip("-").isdecimal() else _written(text)
    except (ValueError, OverflowError):
        return None


def _written(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _text(given: Mapping[str, Any], field: str, longest: int) -> str:
    return str(given.get(field, "")).replace("\0", "")[:longest]


def _odd(field: str, value: str, remedy: str) -> Problem:
    return Problem(field, value[:80], f'"{value[:80]}" is not understood.', remedy, "invalid")


def _clock(moment: int) -> str:
    when = datetime.fromtimestamp(moment, UTC)
    return f"{when:%b} {when.day}, {when:%H:%M}"
