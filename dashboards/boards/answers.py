"""Data of boards as JSON and CSV: location, time range and options of the URL, cached responses.

Viewers with equal visibility and time zone share a rendered board. Annotations depend on the viewer
and are never shared.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.cache import get_conditional_response
from django.views.decorators.cache import never_cache
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from console.accounts.permissions import Somebody
from console.core.errors import Problem
from console.core.local_time import format_clock, get_zone_key, get_zone_name, localize, parse_local
from dashboards import selectors as dashboards_selectors
from dashboards.boards import annotations as boards_annotations
from dashboards.boards.panels import BOARDS, FIRST
from dashboards.boards.panels.declarations import DEFAULT_RANGE, RANGES, Board, Panel, Range
from dashboards.boards.queries import SCRAPE_S, Scope
from dashboards.boards.results import board as results
from dashboards.boards.results import csv_export
from dashboards.costs.prices.factors import factors
from dashboards.prometheus.http.client import Asker, Window
from dashboards.prometheus.http.federation import Federated
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoints

MAX_CACHED = 64  # boards of different ranges or viewers, a few hundred KB each
_REFRESHES_PER_STEP = 12  # refreshes per coarse step, whose last point is still incomplete
_MAX_AGE_S = 60  # of the current values on a board of weeks
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
    """Query of a board's page. `until`: end of a fixed range in epoch seconds; None means now.
    `refresh` in seconds: 0 never, None the range's default. `panel`: the only panel to show, "" for
    all.
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
        board_query = replace(self, **changes)
        pairs: dict[str, Any] = {}
        if board_query.until is not None:
            pairs |= {
                "from": board_query.until - board_query.range.length_s,
                "to": board_query.until,
            }
        else:
            pairs["range"] = board_query.range.key
        if board_query.refresh is not None:
            pairs["refresh"] = board_query.refresh or "off"
        if board_query.compare:
            pairs["compare"] = PREVIOUS
        if board_query.worker:
            pairs["worker"] = board_query.worker
        if board_query.panel:
            pairs["panel"] = board_query.panel
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
        return self.board.one_panels if self.endpoint else self.board.fleet_panels

    def shown(self, board_query: BoardQuery) -> tuple[Panel, ...]:
        return tuple(panel for panel in self.panels if board_query.panel in ("", panel.id))

    def scope(self, scope: Scope, board_query: BoardQuery) -> Scope:
        return replace(scope, worker=board_query.worker) if self.endpoint else scope


def parse_query(given: Mapping[str, Any], now: float) -> tuple[BoardQuery, tuple[Problem, ...]]:
    """Parse a query. Invalid parameters are reported as problems and ignored."""
    problems: list[Problem] = []
    board_query = _parse_times(given, now, problems)
    refresh = given.get("refresh", "")
    allowed = {"off" if not s else str(s): s for s in REFRESHES}
    if refresh and refresh not in allowed:
        problems.append(_make_problem("refresh", refresh, f"Choose one of {', '.join(allowed)}."))
    compare = given.get("compare", "")
    if compare and compare != PREVIOUS:
        problems.append(_make_problem("compare", compare, f'Use "{PREVIOUS}" or omit it.'))
    return (
        replace(
            board_query,
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


class BoardCache:
    """Per-process cache with expiry. Concurrent callers of a key wait for the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[Hashable, tuple[float, threading.Lock, list[Any]]] = OrderedDict()

    def get(self, key: Hashable, good_s: float, make: Callable[[], Any]) -> Any:
        now = time.monotonic()
        with self._lock:
            entry = self._made.get(key)
            if entry is None or entry[0] < now:
                entry = self._made[key] = (now + good_s, threading.Lock(), [])
                self._made.move_to_end(key)
                while len(self._made) > MAX_CACHED:
                    self._made.popitem(last=False)
        with entry[1]:
            if not entry[2]:
                entry[2].append(make())
            return entry[2][0]

    def clear(self) -> None:
        with self._lock:
            self._made.clear()


CACHE = BoardCache()


@gzip_page
@never_cache
@require_safe
def board_data(request: HttpRequest, name: str = "", board: str = FIRST) -> HttpResponse:
    """Return the board of the named endpoint, or of all endpoints visible to the user."""
    place, board_query, resolved = _resolve_url(request, name, board)
    rendered = render(place, board_query, resolved)
    notes = boards_annotations.list_notes(
        resolved.prometheus, request.user, resolved.scope, resolved.window
    )
    body = json.dumps(notes).encode()[:-1] + b", " + rendered[1:]
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    response = HttpResponse(body, content_type="application/json", headers={"ETag": etag})
    return get_conditional_response(request, etag=etag, response=response) or response


@never_cache
@require_safe
def board_csv(request: HttpRequest, name: str = "", board: str = FIRST) -> HttpResponse:
    measured = results.measure(_resolve_url(request, name, board)[2])
    filename = csv_export.make_filename(measured, board, name)
    response = HttpResponse(csv_export.format_csv(measured), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


def locate(board: str, endpoint: str = "") -> BoardLocation:
    place = BoardLocation(BOARDS[board], endpoint)
    if not place.panels:
        raise Http404(board)
    return place


def render(place: BoardLocation, board_query: BoardQuery, request: results.BoardRequest) -> bytes:
    """Return the board's JSON without annotations, rendered at most once per new point."""
    good_s = max(SCRAPE_S - 1, min(request.window.step / _REFRESHES_PER_STEP, _MAX_AGE_S))
    body: bytes = CACHE.get(
        _make_cache_key(place, board_query, request),
        good_s,
        lambda: json.dumps(results.document(results.measure(request))).encode(),
    )
    return body


def measure(
    viewer: Somebody, place: BoardLocation, board_query: BoardQuery, scope: Scope
) -> results.BoardResult:
    return results.measure(_resolve(viewer, place, board_query, scope))


def list_annotations(
    viewer: Somebody, place: BoardLocation, board_query: BoardQuery, scope: Scope, window: Window
) -> dict[str, Any]:
    return boards_annotations.list_notes(
        _select_asker(place), viewer, place.scope(scope, board_query), window
    )


def _resolve_url(
    request: HttpRequest, name: str, board: str
) -> tuple[BoardLocation, BoardQuery, results.BoardRequest]:
    place, (board_query, _) = locate(board, name), parse_query(request.GET, time.time())
    if not name:
        scope = dashboards_selectors.get_fleet_scope(request.user)
    elif endpoints.endpoints().filter(name=name).exists():
        scope = Scope(name, endpoints.NAMESPACE)
    else:
        raise Http404(name)
    return place, board_query, _resolve(request.user, place, board_query, scope)


def _resolve(
    viewer: Somebody, place: BoardLocation, board_query: BoardQuery, scope: Scope
) -> results.BoardRequest:
    panels = place.shown(board_query)
    # Prices cost a query: read them only for panels that use them.
    is_priced = any(line.factor for panel in panels for line in panel.lines)
    return results.BoardRequest(
        _select_asker(place),
        panels,
        place.scope(scope, board_query),
        board_query.range,
        board_query.end(time.time()),
        factors(viewer) if is_priced else {},
        board_query.compare,
    ).fit()


def _make_cache_key(
    place: BoardLocation, board_query: BoardQuery, request: results.BoardRequest
) -> Hashable:
    # A Federated is rebuilt for each request; its parts persist.
    asker = request.prometheus
    return (
        asker.parts if isinstance(asker, Federated) else asker,
        place.board.key,
        board_query.panel,
        board_query.compare,
        board_query.range.key,
        request.scope,
        request.window,
        get_zone_key(),
        json.dumps(request.factors, sort_keys=True),
    )


def _select_asker(place: BoardLocation) -> Asker:
    return connections.connect_endpoint(place.endpoint) if place.endpoint else connections.fleet()
