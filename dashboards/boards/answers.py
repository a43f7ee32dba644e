"""Cached JSON responses of boards.

Viewers with equal visibility and time zone share a rendered board. Annotations depend on the viewer
and are never shared.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from console.accounts.permissions import Somebody
from console.core.local_time import get_zone_key
from dashboards.boards import annotations as boards_annotations
from dashboards.boards.queries import SCRAPE_S, Scope
from dashboards.boards.results import board, resolution
from dashboards.boards.results.query import BoardLocation, BoardQuery
from dashboards.costs.prices.factors import factors
from dashboards.prometheus import connections
from dashboards.prometheus.http.client import Asker, Window
from dashboards.prometheus.http.federation import Federated

MAX_CACHED = 64  # boards of different ranges or viewers, a few hundred KB each
_REFRESHES_PER_STEP = 12  # refreshes per coarse step, whose last point is still incomplete


@dataclass(frozen=True, slots=True)
class BoardResponse:
    body: bytes
    etag: str


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


@dataclass(frozen=True, slots=True)
class BoardRequest:
    """Resolved parameters of a board. `end`: exact end of the range in epoch seconds."""

    asker: Asker
    location: BoardLocation
    query: BoardQuery
    scope: Scope
    end: float
    factors: board.Factors

    @property
    def window(self) -> Window:
        chosen = self.query.range
        return Window.ending(self.end, chosen.length_s, chosen.step_s)

    def cache_key(self) -> Hashable:
        # A Federated is rebuilt for each request; its parts persist.
        source = self.asker.parts if isinstance(self.asker, Federated) else self.asker
        return (
            source,
            self.location.board.key,
            self.query.panel,
            self.query.compare,
            self.query.range.key,
            self.scope,
            self.window,
            get_zone_key(),
            json.dumps(self.factors, sort_keys=True),
        )

    def measure(self) -> board.BoardResult:
        return board.measure(
            self.asker,
            self.location.shown(self.query),
            self.scope,
            self.query.range,
            self.end,
            self.factors,
            compare=self.query.compare,
        )


def respond(
    viewer: Somebody, place: BoardLocation, look: BoardQuery, scope: Scope
) -> BoardResponse:
    """Return the board's JSON, rendered at most once per new point, with current annotations."""
    request = _resolve(viewer, place, look, scope)
    good_s = max(SCRAPE_S - 1, request.window.step / _REFRESHES_PER_STEP)
    rendered: bytes = CACHE.get(
        request.cache_key(), good_s, lambda: json.dumps(board.document(request.measure())).encode()
    )
    notes = boards_annotations.list_notes(request.asker, viewer, request.scope, request.window)
    body = json.dumps(notes).encode()[:-1] + b", " + rendered[1:]
    return BoardResponse(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def measure(
    viewer: Somebody, place: BoardLocation, look: BoardQuery, scope: Scope
) -> board.BoardResult:
    return _resolve(viewer, place, look, scope).measure()


def list_annotations(
    viewer: Somebody, place: BoardLocation, look: BoardQuery, scope: Scope, window: Window
) -> dict[str, Any]:
    return boards_annotations.list_notes(
        _select_asker(place), viewer, place.scope(scope, look), window
    )


def _resolve(
    viewer: Somebody, place: BoardLocation, look: BoardQuery, scope: Scope
) -> BoardRequest:
    asker, end = _select_asker(place), look.end(time.time())
    scope = place.scope(scope, look)
    look = replace(look, range=resolution.fit_range(asker, scope, look.range, end))
    # Prices cost a query: read them only for panels that use them.
    priced = any(line.factor for panel in place.shown(look) for line in panel.lines)
    return BoardRequest(asker, place, look, scope, end, factors(viewer) if priced else {})


def _select_asker(place: BoardLocation) -> Asker:
    return connections.connect_endpoint(place.endpoint) if place.endpoint else connections.fleet()
