"""Cached JSON responses of boards.

Viewers with equal visibility share one rendered board until a new point can be expected.
Annotations depend on the viewer and are never shared.
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
from dashboards.boards import annotations as boards_annotations
from dashboards.boards.page import BoardLocation
from dashboards.boards.queries import SCRAPE_S, Scope
from dashboards.boards.results import board, comparison, resolution
from dashboards.boards.results.query import BoardQuery
from dashboards.costs.prices.factors import factors
from dashboards.prometheus import connections
from dashboards.prometheus.http.client import Asker, Window
from dashboards.prometheus.http.federation import Federated

KEPT_AT_MOST = 64  # boards of different ranges or viewers, a few hundred KB each
_DRAWN_AGAIN = 12  # refreshes per coarse step, whose last point is still incomplete


@dataclass(frozen=True, slots=True)
class BoardResponse:
    """`etag` is a hash of the body."""

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
                while len(self._made) > KEPT_AT_MOST:
                    self._made.popitem(last=False)
        with entry[1]:
            if not entry[2]:
                entry[2].append(make())
            return entry[2][0]

    def clear(self) -> None:
        with self._lock:
            self._made.clear()


KEPT = BoardCache()


def answer(viewer: Somebody, place: BoardLocation, look: BoardQuery, scope: Scope) -> BoardResponse:
    asker, now = _asker(place), time.time()
    look = _fitted(asker, place, look, scope, now)
    window = Window.ending(look.end(now), look.range.length_s, look.range.step_s)
    good_s = max(SCRAPE_S - 1, window.step / _DRAWN_AGAIN)
    prices = _factors(viewer, place, look)
    priced = json.dumps(prices, sort_keys=True)
    whose = place.scope(scope, look)
    key = (
        _whom(asker),
        place.board.key,
        look.panel,
        look.compare,
        look.range.key,
        whose,
        window,
        priced,
    )

    def draw() -> bytes:
        found = _measured(asker, place, look, whose, prices, now)
        return json.dumps(document(found, compare=look.compare)).encode()

    drawn: bytes = KEPT.get(key, good_s, draw)
    told = boards_annotations.notes(asker, viewer, whose, window)
    body = json.dumps(told).encode()[:-1] + b", " + drawn[1:]
    return BoardResponse(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def measured(
    viewer: Somebody, place: BoardLocation, look: BoardQuery, scope: Scope
) -> board.BoardResult:
    """Return the values without rendering, for the CSV export."""
    prices = _factors(viewer, place, look)
    whose = place.scope(scope, look)
    asker, now = _asker(place), time.time()
    look = _fitted(asker, place, look, scope, now)
    return _measured(asker, place, look, whose, prices, now)


def happened(
    viewer: Somebody, place: BoardLocation, look: BoardQuery, scope: Scope, window: Window
) -> dict[str, Any]:
    return boards_annotations.notes(_asker(place), viewer, place.scope(scope, look), window)


def document(found: board.BoardResult, *, compare: bool) -> dict[str, Any]:
    told = board.document(found)
    if compare:
        told["panels"] = [
            comparison.compared(panel, shown, found.window)
            for panel, shown in zip(told["panels"], found.panels, strict=True)
        ]
    return told


def _measured(
    asker: Asker,
    place: BoardLocation,
    look: BoardQuery,
    scope: Scope,
    prices: board.Factors,
    now: float,
) -> board.BoardResult:
    panels, end = place.shown(look), look.end(now)
    return board.measure(asker, panels, scope, look.range, end, prices, compare=look.compare)


def _fitted(
    asker: Asker, place: BoardLocation, look: BoardQuery, scope: Scope, now: float
) -> BoardQuery:
    whose = place.scope(scope, look)
    return replace(look, range=resolution.fitting(asker, whose, look.range, look.end(now)))


def _asker(place: BoardLocation) -> Asker:
    return connections.of_endpoint(place.endpoint) if place.endpoint else connections.fleet()


def _whom(asker: Asker) -> Any:
    """Return the cache identity: a Federated is rebuilt for each request, its parts persist."""
    return asker.parts if isinstance(asker, Federated) else asker


def _factors(viewer: Somebody, place: BoardLocation, look: BoardQuery) -> board.Factors:
    """Load price factors only for panels that use them."""
    priced = any(line.factor for panel in place.shown(look) for line in panel.lines)
    return factors(viewer) if priced else {}
