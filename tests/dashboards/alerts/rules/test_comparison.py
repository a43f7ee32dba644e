"""Measure and thresholds of user-written conditions."""

from __future__ import annotations

import pytest

from dashboards.alerts.evaluation.measure import VALUE, user_rule_measure
from dashboards.alerts.rules.comparison import Comparison, parse_comparison, parse_number
from dashboards.prometheus.http.client import QueryResult, Series, Window


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("up == 0", Comparison("up", ("0",))),
        ("sum(rate(x[5m])) > 1e3", Comparison("sum(rate(x[5m]))", ("1e3",))),
        ("(a / b > 0.5)", Comparison("a / b", ("0.5",))),
        ("(a > 1) + (b > 2)", Comparison("(a > 1) + (b > 2)")),
        ("(a) / (b) > 0.5", Comparison("(a) / (b)", ("0.5",))),
        ("a < 3", Comparison("a", ("3",), falls=True)),
        ("3 > a", Comparison("a", ("3",), falls=True)),
        ("3 < a", Comparison("a", ("3",))),
        ('a{b!="c>1", d=~"x|y"} >= -2', Comparison('a{b!="c>1", d=~"x|y"}', ("-2",))),
        ("a > 3 and on (x) b > 4", Comparison("a", ("3",))),
        ("(a > 3) unless b", Comparison("a", ("3",))),
        ("a > 3 or b > 4", Comparison("a > 3 or b > 4")),
        ("a > bool 3", Comparison("a > bool 3")),
        ("absent(a)", Comparison("absent(a)")),
        ("a > on (x) group_left (y) b", Comparison("a", ("b",))),
        ("a > 1 < 5", Comparison("a", ("1", "5"))),
        ("a # > 2\n > 60 * 5", Comparison("a", ("60 * 5",))),
        ("max_over_time((a > 1)[5m:1m])", Comparison("max_over_time((a > 1)[5m:1m])")),
        ("a{b='\"'} > 1", Comparison("a{b='\"'}", ("1",))),
        ("sandbox:or_rate > 2", Comparison("sandbox:or_rate", ("2",))),
        ("((", Comparison("((")),
        ("", Comparison("")),
        (")>(", Comparison(")>(")),
    ],
)
def test_condition_has_a_measure_and_a_threshold(condition: str, found: Comparison) -> None:
    assert parse_comparison(condition) == found


def test_threshold_is_a_number_or_a_query() -> None:
    assert [parse_number(one) for one in ("3", "-1e2", "- 2", "5 * 60", "x")] == [
        3,
        -100,
        -2,
        None,
        None,
    ]
    assert user_rule_measure("a > 3").thresholds == (3.0,)
    assert user_rule_measure("a > 5 * 60").thresholds == ("5 * 60",)
    assert (user_rule_measure("a < 3").value, user_rule_measure("a > 3").value) == (
        "bottomk(12, a)",
        "topk(12, a)",
    )


@pytest.mark.parametrize(("condition", "first"), [("a > 3", "9"), ("a < 3", "0")])
def test_most_relevant_of_many_series_are_drawn(condition: str, first: str) -> None:
    window = Window(0, 120, 60)
    found = tuple(Series((("endpoint", str(n)),), (float(n),) * 3) for n in range(10))
    drawn = user_rule_measure(condition).drawn({VALUE: QueryResult(found)}, window)
    assert drawn.chart is not None
    assert [line.label for line in drawn.chart.lines][0::6] == [first, "Threshold"]
    assert (drawn.left, drawn.undrawn) == (4, False)
    several = {VALUE: QueryResult(found), "threshold0": QueryResult(found)}
    assert user_rule_measure("a > b").drawn(several, window).undrawn
