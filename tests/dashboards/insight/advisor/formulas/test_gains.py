"""Verdicts on replayed candidates, and which of them are listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.insight.advisor.formulas.cache_sizes import build_sizes, draw_sizes
from dashboards.insight.advisor.formulas.gains import (
    ADVISED,
    TRADE_OFF,
    UNCLEAR,
    WORSE,
    AdviceRow,
    Prices,
    bill_change,
    choose_rows,
    evaluate,
    judge,
)
from dashboards.insight.whatif.model.outcome import Estimate
from tests.dashboards.insight.advisor.surveyed import PRESENT, candidates, surveyed

NOW = {**PRESENT, "strategy": "prefixaware"}


def row(
    money: tuple[float, float], ttft: tuple[float, float], memory: float = 0.0, kind: str = "cache"
) -> AdviceRow:
    gain = Estimate(sum(money) / 2, *money)
    change = Estimate(sum(ttft) / 2, *ttft)
    return AdviceRow("", kind, (), money=gain, ttft_p90=change, memory_gib=memory)


@pytest.mark.parametrize(
    ("money", "ttft", "verdict"),
    [
        ((1, 3), (-0.01, 0.01), ADVISED),
        ((-1, 3), (-0.3, -0.1), ADVISED),
        ((1, 3), (0.1, 0.2), TRADE_OFF),
        ((-3, -1), (-0.3, -0.1), TRADE_OFF),
        ((-1, 1), (-0.1, 0.1), UNCLEAR),
        ((1, 3), (-0.1, 0.1), TRADE_OFF),
        ((1, 3), (3.0, 5.0), WORSE),
        ((-3, -1), (-0.01, 0.01), WORSE),
        ((-1, 1), (0.1, 0.2), WORSE),
    ],
)
def test_a_verdict_needs_intervals_without_zero(
    money: tuple[float, float], ttft: tuple[float, float], verdict: str
) -> None:
    assert judge(row(money, ttft)) == verdict


def test_of_the_sizes_the_best_for_money_and_for_ttft_are_listed() -> None:
    found = [
        replace(row((90, 110), (-0.12, -0.08), 4.0), key="cheap", verdict=ADVISED),
        replace(row((10, 30), (-0.42, -0.38), 8.0), key="fast", verdict=ADVISED),
        replace(row((1, 3), (-0.42, -0.38), 64.0), key="large", verdict=ADVISED),
        replace(row((1, 1), (0.0, 0.0), kind="replicas"), key="other"),
    ]
    assert [one.key for one in choose_rows(found)] == ["cheap", "fast", "other"]


def test_a_bill_without_the_price_of_l2_is_known_where_l2_stays() -> None:
    more = {**NOW, "replicas": 4}
    assert bill_change({**NOW, "l2_gib": 5}, {**more, "l2_gib": 5}, Prices()) == 4 * 730
    assert bill_change(NOW, {**NOW, "l1_gib": 1, "l2_gib": 5}, Prices()) is None
    found = bill_change(NOW, {**NOW, "l1_gib": 1, "l2_gib": 5}, Prices(0.1))
    assert found == pytest.approx(0.5 * 730)


def test_the_value_of_a_gib_adds_up_to_the_gain_of_its_size() -> None:
    result, prices = surveyed(), Prices(0.02)
    rows = [
        evaluate(NOW, values, figures, result, prices)
        for values, figures in zip(candidates(), result["candidates"], strict=True)
    ]
    sizes = build_sizes(NOW, candidates(), result, rows, prices)
    assert sizes is not None
    assert sizes.cells[1][0] is None  # L2 without L1
    for line in sizes.cells:
        for cell in line:
            if cell is not None and cell.money is not None and cell.worth is not None:
                assert cell.money.value <= cell.worth.value
    first = next(one for one in sizes.values if one.tier == "L1")
    cell = sizes.cells[0][1]
    assert cell is not None and cell.worth is not None and first.worth is not None
    gib = (first.end_gib - first.begin_gib) * NOW["replicas"]
    assert first.worth.value * gib == pytest.approx(cell.worth.value)
    assert first.price == pytest.approx(7.3)  # 0.01 USD/h
    drawing = draw_sizes(sizes)
    assert len(drawing.lines) == len(sizes.l2)
    assert all(0 < dot.y < drawing.height for line in drawing.lines for dot in line.dots)
