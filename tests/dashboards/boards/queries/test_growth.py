"""Counter growth equals the counted events under new series, restarts and failed scrapes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.boards.queries import Scope, Times, growth, promql
from dashboards.boards.results import targets
from tests.dashboards.prometheus.config.test_recording_rules import expression_test
from tests.support.prometheus import PROMTOOL

# Samples every five seconds, ten minutes: 120. `stale` is what Prometheus writes when a scrape
# fails or a series is no longer exported.
MINUTES = 10
AT = f"{MINUTES}m"
UP = "1x120"


def target(name: str) -> str:
    return f'{{job="vllm",instance="{name}"}}'


# By the instance: samples of `up`, of the counter, and how much it counted in the ten minutes.
CASES: dict[str, tuple[str, str, float]] = {
    "steady": (UP, "100+1x120", 120),
    "still": (UP, "100x120", 0),
    "appears": (UP, "_x60 5x60", 5),
    "appears-and-counts": (UP, "_x60 5+1x60", 65),
    "restarts": (UP, "100+1x60 0+1x59", 60 + 59),
    "appears-again-at-the-same": ("1x40 0x20 1x60", "31x40 stale _x40 31x38", 31),
    "dies-between-two-windows": ("1x61 stale", "100+1x61 stale", 61),
    "appears-and-dies": ("1x90 stale", "_x60 7x20 stale", 7),
    "fails-meanwhile": ("1x60 0x6 1x54", "100x60 stale _x5 107x54", 7),
    "appears-after-failing": ("1x60 0x6 1x54", "_x67 7x54", 7),
    # Never scraped before: a process that has just begun, and one whose start is not known.
    "young": ("_x60 1x60", "_x60 5x60", 5),
    "prometheus-is-new": ("_x60 1x60", "_x60 500x60", 0),
}
STARTED = {"young": "_x60 300x60"}


def _evaluated(tmp_path: Path, questions: list[dict[str, Any]]) -> str:
    series = []
    for name, (up, values, _) in CASES.items():
        series += [
            {"series": f"up{target(name)}", "values": up},
            {"series": f"c_total{target(name)}", "values": values},
        ]
        if name in STARTED:
            started = f"process_start_time_seconds{target(name)}"
            series.append({"series": started, "values": STARTED[name]})
    return _tested(tmp_path, {"interval": "5s", "input_series": series}, questions)


def _tested(tmp_path: Path, test: dict[str, Any], questions: list[dict[str, Any]]) -> str:
    test = {**test, "promql_expr_test": questions}
    (tmp_path / "tests.json").write_text(json.dumps({"tests": [test]}))
    command = [PROMTOOL, "test", "rules", str(tmp_path / "tests.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("every_s", [15, 60])
def test_consecutive_windows_sum_to_the_counter(tmp_path: Path, every_s: int) -> None:
    length_s = 60 * MINUTES
    counted = growth.rewrite_for_total(f"increase(c_total[{length_s}s])", every_s)
    wanted = [(target(name), grown) for name, (_, _, grown) in CASES.items()]
    # What was first seen at the first sample may have been counted before.
    assert _evaluated(tmp_path, [expression_test(counted, *wanted, at=AT)]) == ""


@pytest.mark.parametrize("step_s", [5, 10, 60])
def test_every_event_is_at_a_point_of_the_chart(tmp_path: Path, step_s: int) -> None:
    times = Times(step_s, 60 * MINUTES)
    drawn = growth.rewrite_for_chart(f"rate(c_total[{times.rate_s}s])", times)
    any_ = f"max_over_time(({drawn})[{60 * MINUTES}s:{step_s}s]) > bool 0"
    lost = {"fails-meanwhile"} if times.rate_s < 35 else set()  # evidence, not drawn
    wanted = [
        (target(name), float(grown > 0 and name not in lost))
        for name, (_, _, grown) in CASES.items()
    ]
    assert _evaluated(tmp_path, [expression_test(any_, *wanted, at=AT)]) == ""


def test_chart_includes_growth_between_windows(tmp_path: Path) -> None:
    """Of scrapes at 56 s and 63 s, windows of a minute have one each."""
    series = [{"series": "c_total", "values": "1x8 2x90"}]
    times = Times(60, 600, scrape_s=7)
    drawn = growth.rewrite_for_chart(
        f"rate(c_total[{times.rate_s}s])", times, growth.Appeared(frozenset())
    )
    any_ = f"max_over_time(({drawn})[600s:60s]) > bool 0"
    test = {"interval": "7s", "input_series": series}
    assert _tested(tmp_path, test, [expression_test(any_, ("{}", 1.0), at=AT)]) == ""


def test_sum_of_the_preceding_day_includes_what_restarted_processes_counted(tmp_path: Path) -> None:
    values = {
        "up": "_x1450 1x119",
        "process_start_time_seconds": "_x1450 87000x60 90660x58",
        "c_total": "_x1450 0+100x60 0+100x58",
    }
    series = [{"series": f"{name}{target('new')}", "values": text} for name, text in values.items()]
    summed = growth.rewrite_for_chart("increase(c_total[1d])", Times(60, 3600))
    near = f"({summed}) > 11750 and ({summed}) < 11950"
    test = {"interval": "1m", "input_series": series}
    counted = expression_test(f"count({near})", ("{}", 1.0), at="1569m")
    assert _tested(tmp_path, test, [counted]) == ""


def test_ranking_includes_new_series(tmp_path: Path) -> None:
    ranked = growth.rewrite_for_chart("increase(c_total[600s] @ end())", Times(5, 600))
    seen = f"count({ranked})"
    assert _evaluated(tmp_path, [expression_test(seen, ("{}", float(len(CASES))), at=AT)]) == ""


def test_series_name_is_returned_once_a_series_appeared(tmp_path: Path) -> None:
    found = promql.names_appeared([("c_total", ""), ("up", "")], 60 * MINUTES - 5)
    wanted = [('{metric="c_total"}', 6.0), ('{metric="up"}', 2.0)]
    assert _evaluated(tmp_path, [expression_test(found, *wanted, at=AT)]) == ""


def test_exported_counters_are_named_whatever_their_selector(tmp_path: Path) -> None:
    """A set operation ignores names: without a label, all but the first selector would be lost."""
    requested = [("c_total", ""), ("lost_total", ""), ("up", '{job="vllm"}')]
    found = promql.names_exported(requested, 60 * MINUTES)
    wanted = [(f'{{metric="{name}"}}', float(len(CASES))) for name in ("c_total", "up")]
    assert _evaluated(tmp_path, [expression_test(found, *wanted, at=AT)]) == ""


def test_only_instances_with_new_series_are_read_exactly() -> None:
    """The others are a plain rate; a cluster exporter's series have another instance."""
    times, text = Times(60, 900), 'rate(c_total{pod="p"}[60s])'
    plain = 'rate(c_total{pod="p"}[65s])'
    none = growth.Appeared(instances=())
    some = growth.Appeared(instances=("10.0.0.1:80", "b"))
    assert growth.rewrite_for_chart(text, times, none) == plain
    drawn = growth.rewrite_for_chart(text, times, some)
    assert drawn.endswith(f"or {plain})")
    assert r'c_total{pod="p",instance=~"10\\.0\\.0\\.1:80|b"}[60s]' in drawn
    pods = growth.rewrite_for_chart("rate(container_x[60s])", times, none)
    assert "or rate(container_x[65s])" in pods
    still = growth.Appeared(instances=("b",), exporters=frozenset({"kube_y"}))
    assert growth.rewrite_for_chart("rate(container_x[60s])", times, still) == (
        "rate(container_x[65s])"
    )
    assert " or " in growth.rewrite_for_chart("rate(kube_y[60s])", times, still)


@pytest.mark.parametrize(
    ("counter", "targets"),
    [
        ("c_total", "up["),
        (
            'c_total{endpoint_name="a",le="1",namespace="n",pod="p"}',
            'up{endpoint_name="a",namespace="n",pod="p"}[',
        ),
        ('c_total{code=~"5..",endpoint=~"a|b"}', 'up{endpoint_name=~"a|b"}['),
        ("emberline_l2_x_total", 'up{job="l2"}['),
        ('kube_x_total{pod=~"p"}', 'up{job!~"vllm|router|l2"}['),
    ],
)
def test_new_series_read_only_targets_that_may_export_the_counter(
    counter: str, targets: str
) -> None:
    """A cluster exporter names pods that are not its targets."""
    for text in (
        growth.rewrite_for_chart(f"rate({counter}[20s])", Times(5, 900)),
        growth.rewrite_for_total(f"increase({counter}[900s])", 15),
    ):
        assert text.count(f"max_over_time({targets}") == 2
        assert text.count("max_over_time(up") == 2
        assert f"process_start_time_seconds{targets.removeprefix('up')}" in text


def test_instances_with_new_series_are_found(tmp_path: Path) -> None:
    """Also those that do not report it."""
    series = []
    for name, added in (("same", "0x120"), ("new", "0x60 3 0x59"), ("silent", "")):
        series.append({"series": f"up{target(name)}", "values": UP})
        if added:
            series.append({"series": f"scrape_series_added{target(name)}", "values": added})
    question = targets.added_series(Scope(), 60 * MINUTES)
    wanted = [('{instance="new"}', 3.0), ('{instance="silent"}', 1.0)]
    test = {"interval": "5s", "input_series": series}
    assert _tested(tmp_path, test, [expression_test(question, *wanted, at=AT)]) == ""


def test_totals_end_at_a_complete_window_within_five_minutes() -> None:
    for length_s in (60, 900, 3600, 21_600, 86_400, 7 * 86_400, 30 * 86_400):
        for moment in (1_800_000_000, 1_800_000_001, 1_799_999_999.5):
            at = promql.align_end(moment, length_s)
            assert at % promql.get_part_s(length_s) == 0
            assert 0 <= at - moment < 300
