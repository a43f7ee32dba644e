"""Hit rate and worth of L1 and L2 sizes together, the value of a GiB, and their drawing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dashboards.insight.advisor.formulas.gains import HOURS_A_MONTH, AdviceRow, Prices, worth
from dashboards.insight.whatif.model.outcome import Estimate

WIDTH, HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 90, 14, 40
_ZERO = Estimate(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class SizeCell:
    """One pair of sizes; `worth`: of the saved tokens against the present, USD per month."""

    l1_gib: float
    l2_gib: float
    hit_rate: Estimate
    l1_hit_rate: float
    l2_hit_rate: float
    ttft_p90_s: float
    worth: Estimate | None
    money: Estimate | None
    is_present: bool


@dataclass(frozen=True, slots=True)
class MarginalValue:
    """Value of one GiB between two sizes of a tier, the other as at present; for L2, the smallest
    L1 where there is none. `price`: USD per month. The interval is known next to the present size.
    """

    tier: str
    begin_gib: float
    end_gib: float
    points: float  # of hit rate for each GiB
    worth: Estimate | None
    price: float | None
    has_interval: bool


@dataclass(frozen=True, slots=True)
class CacheSizes:
    l1: tuple[float, ...]
    l2: tuple[float, ...]
    cells: tuple[tuple[SizeCell | None, ...], ...]  # by L2, then L1; None: not replayed
    values: tuple[MarginalValue, ...]


def build_sizes(
    present: Mapping[str, Any],
    candidates: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    rows: Sequence[AdviceRow],
    prices: Prices,
) -> CacheSizes | None:
    """Return None without candidates of other sizes. `rows`: of the candidates, in their order."""
    now = present["l1_gib"], present["l2_gib"]
    cells = {now: _cell(now, result["present"], _ZERO, _ZERO, True)}
    for values, figures, row in zip(candidates, result["candidates"], rows, strict=True):
        if row.kind != "cache":
            continue
        change = {name: Estimate(**estimates) for name, estimates in figures["change"].items()}
        place = values["l1_gib"], values["l2_gib"]
        value = worth(result, change, present["price_usd_hour"])
        cells[place] = _cell(place, figures["candidate"], value, row.money, False)
    if len(cells) < 2:
        return None
    l1, l2 = (tuple(sorted({place[axis] for place in cells})) for axis in (0, 1))
    grid = tuple(tuple(cells.get((a, b)) for a in l1) for b in l2)
    workers = present["replicas"]
    by_size = {values["l1_gib"]: values["price_usd_hour"] for values in (present, *candidates)}
    across = [cells[a, now[1]] for a in l1 if (a, now[1]) in cells]
    beside = now[0] or next(size for size in l1 if size or size == l1[-1])
    upward = [cells[beside, b] for b in l2 if (beside, b) in cells]
    margins = [
        _marginal(
            "L1",
            *(before, after),
            (after.l1_gib - before.l1_gib) * workers,
            _l1_price(by_size, before.l1_gib, after.l1_gib),
        )
        for before, after in pairwise(across)
    ]
    l2_price = None if prices.l2 is None else prices.l2 * HOURS_A_MONTH
    margins += [
        _marginal("L2", before, after, after.l2_gib - before.l2_gib, l2_price)
        for before, after in pairwise(upward)
    ]
    return CacheSizes(l1, l2, grid, tuple(margins))


def _l1_price(prices: Mapping[float, float | None], begin: float, end: float) -> float | None:
    low, high = prices.get(begin), prices.get(end)
    if low is None or high is None:
        return None
    return (high - low) / (end - begin) * HOURS_A_MONTH


def _cell(
    place: tuple[float, float],
    figures: Mapping[str, Any],
    value: Estimate | None,
    money: Estimate | None,
    is_present: bool,
) -> SizeCell:
    return SizeCell(
        *place,
        Estimate(**figures["hit_rate"]),
        figures["l1_hit_rate"]["value"],
        figures["l2_hit_rate"]["value"],
        figures["ttft_p90_s"]["value"],
        value,
        money,
        is_present,
    )


def _marginal(
    tier: str, before: SizeCell, after: SizeCell, gib: float, price: float | None
) -> MarginalValue:
    each: Estimate | None = None
    if before.worth is not None and after.worth is not None:
        value = (after.worth.value - before.worth.value) / gib
        each = Estimate(value, value, value)
        if before.is_present:
            each = Estimate(value, after.worth.low / gib, after.worth.high / gib)
        elif after.is_present:
            each = Estimate(value, -before.worth.high / gib, -before.worth.low / gib)
    sizes = (before.l1_gib, after.l1_gib) if tier == "L1" else (before.l2_gib, after.l2_gib)
    points = 100 * (after.hit_rate.value - before.hit_rate.value) / gib
    is_cached = before.is_present or after.is_present
    return MarginalValue(tier, *sizes, points, each, price, is_cached)


@dataclass(frozen=True, slots=True)
class SizeDot:
    x: float
    y: float
    low: float
    high: float
    title: str
    is_present: bool


@dataclass(frozen=True, slots=True)
class SizeLine:
    points: str
    dots: tuple[SizeDot, ...]
    label: str
    label_y: float
    number: int


@dataclass(frozen=True, slots=True)
class SizeDrawing:
    """Coordinates in a view box; L1 sizes are evenly spaced."""

    lines: tuple[SizeLine, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM


def draw_sizes(found: CacheSizes) -> SizeDrawing:
    step = (WIDTH - _LEFT - _RIGHT) / max(len(found.l1) - 1, 1)
    cells = [cell for row in found.cells for cell in row if cell is not None]
    top = min(1.0, max(cell.hit_rate.high for cell in cells) + 0.05)
    base = max(0.0, min(cell.hit_rate.low for cell in cells) - 0.05)

    def across(size: float) -> float:
        return round(_LEFT + found.l1.index(size) * step, 1)

    def up(rate: float) -> float:
        share = (rate - base) / (top - base)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    lines = []
    last = HEIGHT * 2.0
    for number, (l2_gib, row) in enumerate(zip(found.l2, found.cells, strict=True)):
        dots = tuple(
            SizeDot(
                across(cell.l1_gib),
                up(cell.hit_rate.value),
                up(cell.hit_rate.low),
                up(cell.hit_rate.high),
                f"L1 {cell.l1_gib:g} GiB, L2 {cell.l2_gib:g} GiB: {cell.hit_rate.value:.1%}",
                cell.is_present,
            )
            for cell in row
            if cell is not None
        )
        if not dots:
            continue
        last = min(dots[-1].y, last - 13)  # labels of close lines do not overlap
        points = " ".join(f"{dot.x},{dot.y}" for dot in dots)
        lines.append(SizeLine(points, dots, f"L2 {l2_gib:g} GiB", last, number % 5))
    ticks = [base + (top - base) * part / 4 for part in range(5)]
    return SizeDrawing(
        tuple(lines),
        tuple((across(size), f"{size:g}") for size in found.l1),
        tuple((up(rate), f"{rate:.0%}") for rate in ticks),
    )
