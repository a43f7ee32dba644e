"""Measure and thresholds of user-written conditions."""

from __future__ import annotations

import pytest

from dashboards.alerts.evaluation.measure import VALUE, written
from dashboards.alerts.rules.comparison import Halves, halves, number, unselective
from dashboards.prometheus.http.client import QueryResult, Series, Window


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("up == 0", Halves("up", ("0",))),
        ("sum(rate(x[5m])) > 1e3", Halves("sum(rate(x[5m]))", ("1e3",))),
        ("(a / b > 0.5)", Halves("a / b", ("0.5",))),
        ("(a > 1) + (b > 2)", Halves("(a > 1) + (b > 2)")),
        ("(a) / (b) > 0.5", Halves("(a) / (b)", ("0.5",))),
        ("a < 3", Halves("a", ("3",), falls=True)),
        ("3 > a", Halves("a", ("3",), falls=True)),
        ("3 < a", Halves("a", ("3",))),
        ('a{b!="c>1", d=~"x|y"} >= -2', Halves('a{b!="c>1", d=~"x|y"}', ("-2",))),
        ("a > 3 and on (x) b > 4", Halves("a", ("3",))),
        ("(a > 3) unless b", Halves("a", ("3",))),
        ("a > 3 or b > 4", Halves("a > 3 or b > 4")),
        ("a > bool 3", Halves("a > bool 3")),
        ("absent(a)", Halves("absent(a)")),
        ("a > on (x) group_left (y) b", Halves("a", ("b",))),
        ("a > 1 < 5", Halves("a", ("1", "5"))),
        ("a # > 2\n > 60 * 5", Halves("a", ("60 * 5",))),
        ("max_over_time((a > 1)[5m:1m])", Halves("max_over_time((a > 1)[5m:1m])")),
        ("a{b='\"'} > 1", Halves("a{b='\"'}", ("1",))),
        ("sandbox:or_rate > 2", Halves("sandbox:or_rate", ("2",))),
        ("((", Halves("((")),
        ("", Halves("")),
        (")>(", Halves(")>(")),
    ],
)
def test_a_condition_has_a_measure_and_what_it_is_held_against(
    condition: str, found: Halves
) -> None:
    assert halves(condition) == found


def test_a_threshold_is_a_number_or_asked_for() -> None:
    assert [number(one) for one in ("3", "-1e2", "- 2", "5 * 60", "x")] == [3, -100, -2, None, None]
    assert written("a > 3").thresholds == (3.0,)
    assert written("a > 5 * 60").thresholds == ("5 * 60",)
    assert (written("a < 3").value, written("a > 3").value) == ("bottomk(12, a)", "topk(12, a)")


@pytest.mark.parametrize(("condition", "first"), [("a > 3", "9"), ("a < 3", "0")])
def test_of_many_lines_the_most_telling_are_drawn(condition: str, first: str) -> None:
    window = Window(0, 120, 60)
    found = tuple(Series((("endpoint", str(n)),), (float(n),) * 3) for n in range(10))
    drawn = written(condition).drawn({VALUE: QueryResult(found)}, window)
    assert drawn.chart is not None
    assert [line.label for line in drawn.chart.lines][0::6] == [first, "Threshold"]
    assert (drawn.left, drawn.undrawn) == (4, False)
    several = {VALUE: QueryResult(found), "threshold0": QueryResult(found)}
    assert written("a > b").drawn(several, window).undrawn


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ('{__name__=~".+"}', '{__name__=~".+"}'),
        ('sum(rate({__name__=~".*"}[5m])) > 1', '{__name__=~".*"}'),
        ('up == 0 or {job="vllm"} > 1', '{job="vllm"}'),
        ('a / on (x) group_left (y) {b!=""}', '{b!=""}'),
        ('up and {a=~".+"}', '{a=~".+"}'),
        ('{__name__!="up"}', '{__name__!="up"}'),
        ("{__name__=~`vllm:x|.*`}", "{__name__=~`vllm:x|.*`}"),
        ('{"__name__"=~".+"}', '{"__name__"=~".+"}'),
        ('{__name__=""}', '{__name__=""}'),
        ('{a="__name__", b="vllm:x"}', '{a="__name__",b="vllm:x"}'),
        ("{", "{}"),
        # Selectors with a metric name.
        ("up", ""),
        ('up{job="x"} > 1', ""),
        ('rate(a:b_total{c=~".+"}[5m]) unless on (a) y {z="1"}', ""),
        ('{__name__="up"}', ""),
        ('{job="x", __name__=~"vllm:.+|emberline_router_.+"}', ""),
        ('{__name__=~"(?:vllm|emberline_).*"}', ""),
        ('{"a.metric", job="x"}', ""),
        ('label_replace(up, "a", "{x}", "b", "{") > 0 # {job="x"}', ""),
    ],
)
def test_selectors_which_name_no_metric_are_found(condition: str, found: str) -> None:
    assert unselective(condition) == found
