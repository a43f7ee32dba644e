"""Combined statistics of a tier's nodes: namespaces, what-if curve, its chart and sizing
advice. Pure.

Keys are spread over nodes by hash, so each node's curve is a fair sample of the tier's: at equal
shares of capacity, hit rates are averaged weighted by lookups. The chart's horizontal axis is
logarithmic, since sizes are compared by factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cachetier.tier.node_stats import Curve, Namespace

# Minimum sampled lookups for advice.
MIN_LOOKUPS = 1000
# Sizes shown, as shares of the current one.
SHARES = (0.5, 1.0, 2.0, 4.0)
# The knee: the smallest size that reaches this share of the largest measured size's hits.
_KNEE_SHARE = 0.95
# A smaller hit rate gain (in points) does not justify more memory.
_MIN_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class Point:
    """Hit rate at `size_bytes`; `share` is relative to current capacity."""

    share: float
    size_bytes: float
    hit_rate: float

    @property
    def hit_percent(self) -> int:
        return round(100 * self.hit_rate)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What-if curve: `points` in ascending order, `knee` one of them, `advice` a sentence."""

    points: tuple[Point, ...]
    shown: tuple[Point, ...]
    knee: Point
    advice: str


def merge_namespaces(parts: Sequence[Sequence[Namespace]]) -> list[Namespace]:
    """Merge the namespaces of several nodes, the largest first."""
    namespaces: dict[str, Namespace] = {}
    for item in (namespace for part in parts for namespace in part):
        had = namespaces.get(item.namespace, Namespace(item.namespace))
        namespaces[item.namespace] = replace(
            had,
            bytes=had.bytes + item.bytes,
            blocks=had.blocks + item.blocks,
            lookups=had.lookups + item.lookups,
            hits=had.hits + item.hits,
            evicted=had.evicted + item.evicted,
        )
    return sorted(namespaces.values(), key=lambda one: (-one.bytes, one.namespace))


def compute_what_if(curves: Sequence[Curve], capacity_bytes: float) -> WhatIf | None:
    """Return the tier's curve, None without enough samples. `capacity_bytes` is the tier's."""
    usable = [curve for curve in curves if curve.capacity_bytes and len(curve.points) > 1]
    requests = sum(curve.requests for curve in usable)
    if requests < MIN_LOOKUPS or not capacity_bytes:
        return None
    shares = sorted({size / curve.capacity_bytes for curve in usable for size, _ in curve.points})

    def point(share: float) -> Point:
        return Point(share, share * capacity_bytes, _rate(usable, share, requests))

    points = tuple(map(point, shares))
    what_if = tuple(point(share) for share in SHARES if shares[0] <= share <= shares[-1])
    best = points[-1].hit_rate
    knee = next(point for point in points if point.hit_rate >= _KNEE_SHARE * best)
    return WhatIf(points, what_if, knee, _advise(points, knee, _rate(usable, 1.0, requests)))


def _rate(curves: Sequence[Curve], share: float, requests: float) -> float:
    return (
        sum(_interpolate(curve, share * curve.capacity_bytes) * curve.requests for curve in curves)
        / requests
    )


def _interpolate(curve: Curve, size: float) -> float:
    """Interpolate linearly between measured sizes."""
    before = curve.points[0]
    for point in curve.points:
        if point[0] >= size:
            width = point[0] - before[0]
            along = (size - before[0]) / width if width else 0.0
            return before[1] + max(along, 0.0) * (point[1] - before[1])
        before = point
    return before[1]


def _advise(points: Sequence[Point], knee: Point, now: float) -> str:
    best = points[-1]
    if best.hit_rate < _MIN_GAIN:
        return "Few lookups repeat, so no size gives many hits. Consider disabling L2."
    scale = f"At {knee.share:.2g} × the current size"
    sentence = f"{scale}, the estimated hit rate is {_format_percent(knee.hit_rate)}"
    if knee.share > 1 and knee.hit_rate - now >= _MIN_GAIN:
        return f"{sentence} (now {_format_percent(now)}); larger sizes add little."
    if knee.share < 1:
        return f"{sentence}, close to the current {_format_percent(now)}: the size can be reduced."
    return f"The size is adequate: at most {_format_percent(best.hit_rate)} hit rate at any size."


def _format_percent(rate: float) -> str:
    return f"{100 * rate:.0f} %"


WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 16, 12, 36


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class CurveDrawing:
    """Coordinates in a view box of `width` x `height`; `line` is the polyline's `points`."""

    line: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    now: Dot
    knee: Dot
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM


def draw_curve(found: WhatIf) -> CurveDrawing:
    low, high = (math.log2(found.points[index].share) for index in (0, -1))
    span = max(high - low, 1e-9)

    def across(share: float) -> float:
        return round(_LEFT + (math.log2(share) - low) / span * (WIDTH - _LEFT - _RIGHT), 1)

    def up(rate: float) -> float:
        return round(HEIGHT - _BOTTOM - rate * (HEIGHT - _TOP - _BOTTOM), 1)

    def dot(point: Point) -> Dot:
        return Dot(across(point.share), up(point.hit_rate), _format_percent(point.hit_rate))

    doubled = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    present = min(found.points, key=lambda point: abs(math.log2(point.share)))
    return CurveDrawing(
        line=" ".join(f"{across(p.share)},{up(p.hit_rate)}" for p in found.points),
        across=tuple(Tick(across(2.0**step), f"x {2.0**step:g}") for step in doubled),
        up=tuple(Tick(up(rate / 100), f"{rate} %") for rate in (0, 25, 50, 75, 100)),
        now=dot(present),
        knee=dot(found.knee),
    )
