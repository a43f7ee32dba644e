"""Chart coordinates of the what-if curve.

The horizontal axis is logarithmic, since sizes are compared by factors. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cachetier.tier.advice import Point, WhatIf

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

    width: int
    height: int
    left: int
    right: int
    bottom: int
    line: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    now: Dot
    knee: Dot


def draw_curve(found: WhatIf) -> CurveDrawing:
    low, high = (math.log2(found.points[at].share) for at in (0, -1))
    span = max(high - low, 1e-9)

    def across(share: float) -> float:
        return round(_LEFT + (math.log2(share) - low) / span * (WIDTH - _LEFT - _RIGHT), 1)

    def up(rate: float) -> float:
        return round(HEIGHT - _BOTTOM - rate * (HEIGHT - _TOP - _BOTTOM), 1)

    def dot(point: Point) -> Dot:
        return Dot(across(point.share), up(point.hit_rate), f"{100 * point.hit_rate:.0f} %")

    doubled = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    present = min(found.points, key=lambda point: abs(math.log2(point.share)))
    return CurveDrawing(
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        bottom=HEIGHT - _BOTTOM,
        line=" ".join(f"{across(p.share)},{up(p.hit_rate)}" for p in found.points),
        across=tuple(Tick(across(2.0**step), f"x {2.0**step:g}") for step in doubled),
        up=tuple(Tick(up(rate / 100), f"{rate} %") for rate in (0, 25, 50, 75, 100)),
        now=dot(present),
        knee=dot(found.knee),
    )
