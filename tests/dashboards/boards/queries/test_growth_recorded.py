"""Long ranges from recorded series equal those of raw samples."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboards.boards import queries
from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.declarations import RANGES
from dashboards.boards.queries import Scope, Times, growth, promql
from dashboards.boards.results import board as results_board
from dashboards.boards.results import evidence
from dashboards.boards.results.board import BoardRequest
from dashboards.boards.results.evidence import EvidenceScope
from dashboards.prometheus.config import recording_rules
from dashboards.prometheus.http.client import Fault, FaultKind, QueryResult, Question, Series
from tests.dashboards.prometheus.config.test_recording_rules import expression_test, of
from tests.support.prometheus import PROMTOOL

KEPT = Times(7200, 14_400, kept=(300,))
DAY = 86_400
MINUTES = Times(60, 3600, kept=(300, 60))  # its steps of one family, what it ranks by of both
HOUR, FIVE, ONE = growth.FAMILIES


def worker(metric: str, pod: str, endpoint: str = "a", **more: str) -> str:
    labels = {"job": "vllm", "namespace": "default", "endpoint_name": endpoint, "pod": pod} | more
    return f"{metric}{promql.selector(labels)}"


# Of endpoint `a` one worker begins an hour late and another one anew; `b` has a steady one.
SERIES = {
    'up{job="vllm",pod="a-0"}': "1x300",
    worker("vllm:prompt_tokens_total", "a-0"): "0+60x300",
    worker("vllm:prompt_tokens_total", "a-1"): "_x180 0+120x120",
    worker("vllm:prompt_tokens_total", "b-0", "b"): "0+30x150 0+30x150",
    worker("vllm:prompt_tokens_by_source_total", "a-0", source="local_compute"): "0+15x300",
    worker("vllm:prompt_tokens_by_source_total", "b-0", "b", source="local_compute"): "0+30x300",
    worker("vllm:time_to_first_token_seconds_bucket", "a-0", le="0.5"): "0+6x300",
    worker("vllm:time_to_first_token_seconds_bucket", "a-0", le="1.0"): "0+12x300",
    worker("vllm:time_to_first_token_seconds_bucket", "a-0", le="+Inf"): "0+12x300",
    worker("vllm:time_to_first_token_seconds_count", "a-0"): "0+12x300",
    worker("vllm:generation_tokens_total", "a-0"): "0+6x300",
    worker("vllm:generation_tokens_total", "a-1"): "0+12x300",
}
NAMES = (
    "prompt_tokens_by_endpoint",
    "reuse_by_endpoint",
    "ttft_p90",
    "on_time_by_endpoint",
    "generated_tokens_by_worker",
    "prompt_share_by_source",
)


def promtool(
    folder: Path, test: dict[str, Any], every: str = "5m"
) -> subprocess.CompletedProcess[str]:
    """It evaluates all groups `every` so often, whatever their own interval; left out are rules
    that no tested expression reads.
    """
    groups = recording_rules.long_ranges()
    groups = groups[1:2] if every == "5m" else groups[1:]
    left = [rule for group in groups for rule in group["rules"]]
    read = " ".join(each["expr"] for each in test["promql_expr_test"])
    while found := [rule for rule in left if rule["record"] in read]:
        read += " ".join(rule["expr"] for rule in found)
        left = [rule for rule in left if rule not in found]
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if rule not in left]
    (folder / "rules.yml").write_text(recording_rules.render(groups))
    data = {"rule_files": ["rules.yml"], "evaluation_interval": every, "tests": [test]}
    (folder / "tests.json").write_text(json.dumps(data))
    command = [PROMTOOL, "test", "rules", folder / "tests.json"]
    return subprocess.run(command, capture_output=True, text=True)


def same(name: str, scope: Scope, tolerance: float, times: Times = KEPT) -> dict[str, Any]:
    """A question with an answer for every series which differs."""
    raw, short = (
        queries.render_for_chart(name, scope, each) for each in (replace(times, kept=()), times)
    )
    assert "rate(" in raw
    assert "rate(" not in short
    away = f"abs(({short}) / ({raw}) - 1) > {tolerance}"
    missing = f"(({short}) unless ({raw})) or (({raw}) unless ({short}))"
    return expression_test(f"({away}) or ({missing})", at="5h" if times is KEPT else "70m")


def test_recorded_series_equal_raw_samples(tmp_path: Path) -> None:
    """To within what an extrapolation makes of a worker that came in the middle of a step."""
    one = Scope("a")
    questions = [same(name, scope, 0.03) for name in NAMES for scope in (Scope(), one)]
    done = promtool(tmp_path, of(SERIES, *questions))
    assert done.returncode == 0, done.stdout + done.stderr
    questions = [same(name, scope, 0.03, MINUTES) for name in NAMES for scope in (Scope(), one)]
    # Four samples a minute, as a rule of every minute needs.
    done = promtool(tmp_path, of(SERIES, *questions) | {"interval": "15s"}, every="1m")
    assert done.returncode == 0, done.stdout + done.stderr


def test_comparison_of_recorded_series_can_fail(tmp_path: Path) -> None:
    """The same, held to what no two ways of reckoning agree on."""
    done = promtool(tmp_path, of(SERIES, same("prompt_tokens_by_endpoint", Scope(), -1.0)))
    assert 'endpoint_name="a"' in done.stderr + done.stdout


@pytest.mark.parametrize("length_s", [7 * DAY, 30 * DAY])
def test_totals_of_weeks_include_the_newest_hour(tmp_path: Path, length_s: int) -> None:
    """An endpoint of 90 minutes has the same totals in a month as in two hours."""
    panels = [one for one in BOARDS["overview"].panels(one=True) if one.kind == "numbers"]
    covered = tuple(family.every_s for family in growth.FAMILIES)

    def plan(length_s: int, targets: int, covered: tuple[int, ...]) -> dict[str, Question]:
        times = Times(300, length_s, kept=covered)
        at = EvidenceScope(Scope("a"), times, 1.8e9, targets, covered)
        return evidence.plan_totals(panels, at)

    weeks, hours = plan(length_s, 5, covered), plan(7200, 1, ())
    labels = 'job="router",instance="a-r",namespace="default",endpoint="a"'
    first_token = "emberline_router_time_to_first_token_seconds"
    series = SERIES | {  # nothing is reused in the first 45 minutes
        f"emberline_router_computed_prompt_tokens_total{{{labels}}}": "0+60x45 2700+5x255",
        f"emberline_router_cached_prompt_tokens_total{{{labels}}}": "0x45 0+55x255",
        f'{first_token}_bucket{{{labels},le="1.0"}}': "0+8x300",
        f"{first_token}_count{{{labels}}}": "0+9x300",
        f'emberline_router_requests_total{{{labels},code="200"}}': "0+9x300",
    }
    questions = [expression_test(f"absent({long.query})", at="90m") for long in weeks.values()]
    for name, long in weeks.items():
        assert "emberline" in long.query
        assert HOUR.all not in long.query
        short = hours[name].query
        away = f"abs(({long.query}) / ({short}) - 1) > 0.001"
        missing = f"(({long.query}) unless ({short})) or (({short}) unless ({long.query}))"
        questions.append(expression_test(f"({away}) or ({missing})", at="90m"))
    done = promtool(tmp_path, of(series, *questions))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_board_counter_is_recorded() -> None:
    found = set()
    recorded = {
        rule["record"] for family in growth.FAMILIES for rule in recording_rules.make_rules(family)
    }
    for board in BOARDS.values():
        for one in (False, True):
            for line in (line for panel in board.panels(one=one) for line in panel.lines):
                scope = Scope("a", worker="a-0") if one else Scope()
                for times in (KEPT, MINUTES):
                    short = queries.render_for_chart(line.query, scope, times)
                    found |= set(re.findall(r"emberline[15][mh]\w*:[\w:]+", short))
                    assert "rate(" not in short, line.query
    assert found - recorded == set()
    assert {name[:11] for name in found} == {FIVE.prefix, ONE.prefix}


@pytest.mark.parametrize(
    ("raw", "short"),
    [
        ("rate(a_total[300s])", "(sum_over_time(emberline5m:a_total[299999ms]) * 1.0)"),
        ('rate(a{pod="p"}[600s])', '(sum_over_time(emberline5m_each:a{pod="p"}[599999ms]) * 0.5)'),
        ("increase(a[1d] @ end())", "(sum_over_time(emberline5m:a[86399999ms] @ end()) * 300)"),
        ("rate(a[200s])", "rate(a[200s])"),
        ("avg_over_time(a[600s])", "avg_over_time(a[600s])"),
    ],
)
def test_expressions_are_rewritten_to_recorded_series(raw: str, short: str) -> None:
    assert growth.rewrite_recorded(raw, KEPT) == short


@pytest.mark.parametrize(
    ("window_s", "step_s", "every_s"),
    [
        (60, 60, 60),
        (300, 300, 300),
        (300, 60, 60),  # in steps of a minute it would be counted five times over
        (86_400, 5, 300),
        (3600, 10, 300),
        (900, 5, 0),  # not worth asking whether a rule kept it
        (3630, 5, 0),
        (20, 5, 0),
    ],
)
def test_matching_recorded_families_are_selected(window_s: int, step_s: int, every_s: int) -> None:
    found = growth.select_families([f"rate(a[{window_s}s])"], Times(step_s, 900))
    assert [family.every_s for family in found] == [every_s] * bool(every_s)


def test_rule_with_too_few_samples_is_not_queried() -> None:
    """A rate over a minute of what is scraped every thirty seconds is a guess."""
    expression = ["rate(a[60s])", "rate(a[300s])"]
    for scrape_s, every in ((15, {60, 300}), (30, {300}), (120, set())):
        times = Times(60, 21_600, scrape_s)
        assert {family.every_s for family in growth.select_families(expression, times)} == every & {
            60
        }
        times = Times(300, 86_400, scrape_s)
        assert {
            family.every_s for family in growth.select_families(expression[1:], times)
        } == every & {300}


def test_coverage_includes_the_window_before_each_step() -> None:
    """A day before each of fifteen minutes: the rules must be a day old, not fifteen minutes."""
    stub = Stub(QueryResult())
    results_board.measure(
        BoardRequest(stub, BOARDS["cost"].panels(one=False), Scope(), RANGES["15m"], 1.8e9)
    )
    assert f"[{900 + 86_400}s:" in stub.recorded_questions["missing_300"].query


def test_uncovered_ranges_are_detected(tmp_path: Path) -> None:
    """Without the rules every step lacks them; with them none does; before anything was, none."""
    question = growth.count_uncovered(FIVE, 14_400)
    series = {'up{job="vllm"}': "_x120 1x180"}
    assert promtool(tmp_path, of(series, expression_test(question, at="5h"))).returncode == 0
    done = promtool(tmp_path, of({'up{job="other"}': "1x300"}, expression_test(question, at="5h")))
    assert done.returncode == 0
    bare = question.replace(FIVE.scraped, "emberline5m:never")
    done = promtool(tmp_path, of(series, expression_test(bare, ("{}", 37.0), at="5h")))
    assert done.returncode == 0, done.stdout + done.stderr
    coarse = growth.count_uncovered(FIVE, 180_000).replace(FIVE.scraped, "emberline5m:never")
    young = {'up{job="vllm"}': "_x301 1x9"}  # since after the last of the moments looked at
    done = promtool(tmp_path, of(young, expression_test(coarse, ("{}", 1.0), at="305m")))
    assert done.returncode == 0, done.stdout + done.stderr


class Stub:
    """Prometheus that returns only the number of steps without a recorded value."""

    def __init__(self, lacking: QueryResult) -> None:
        self.lacking = lacking
        self.recorded_questions: dict[str, Question] = {}

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.recorded_questions |= questions
        return {
            name: self.lacking if name.startswith(("missing", "not_covered")) else QueryResult()
            for name in questions
        }


@pytest.mark.parametrize(
    ("lacking", "range_key", "short"),
    [
        (QueryResult(), "30d", True),
        (QueryResult((Series((), (0.0,)),)), "7d", True),
        (QueryResult((Series((), (3.0,)),)), "30d", False),
        (QueryResult(fault=Fault(FaultKind.TOO_SLOW, "slow")), "30d", False),
        (QueryResult(), "6h", True),
        (QueryResult(), "15m", False),
    ],
)
def test_board_queries_recorded_series_after_full_coverage(
    lacking: QueryResult, range_key: str, short: bool
) -> None:
    stub = Stub(lacking)
    panels = BOARDS["overview"].panels(one=False)
    results_board.measure(BoardRequest(stub, panels, Scope(), RANGES[range_key], 1.8e9))
    found = {question.query for question in stub.recorded_questions.values()}
    families = [family.all for family in growth.FAMILIES]
    short_queries = [query for query in found if ":scraped" not in query]
    assert any(name in query for query in short_queries for name in families) is short


def test_comparison_period_needs_coverage_too() -> None:
    stub = Stub(QueryResult())
    panels = BOARDS["overview"].panels(one=False)
    results_board.measure(BoardRequest(stub, panels, Scope(), RANGES["7d"], 1.8e9, compare=True))
    assert f"[{14 * 86_400 + 43_200}s:" in stub.recorded_questions["missing_300"].query


def test_totals_of_a_month_ask_for_rules_that_end_now() -> None:
    """Its charts have steps of two hours, for which rules of every hour suffice."""
    stub = Stub(QueryResult())
    panels = [one for one in BOARDS["overview"].panels(one=True) if one.id == "good"]
    results_board.measure(BoardRequest(stub, panels, Scope("a"), RANGES["30d"], 1.8e9))
    assert f"[{30 * DAY}s:" in stub.recorded_questions["missing_300"].query


class Late:
    """Rules kept everything but the newest minutes, of which the samples are there."""

    def __init__(self) -> None:
        self.recorded_questions: dict[str, Question] = {}

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.recorded_questions |= questions
        return {name: self._answer(question) for name, question in questions.items()}

    def _answer(self, question: Question) -> QueryResult:
        window = question.window
        if window is None:
            return QueryResult()
        by_rules = any(one.prefix in question.query for one in growth.FAMILIES)
        values = (None,) * window.points if by_rules else (1.0,) * window.points
        return QueryResult((Series((), values),))


@pytest.mark.parametrize("range_key", ["6h", "24h", "7d", "30d"])
def test_newest_points_come_from_raw_samples(range_key: str) -> None:
    """Rules come after what they keep: a burst of a minute ago must not be missing."""
    chosen = RANGES[range_key]
    panels = [panel for panel in BOARDS["overview"].panels(one=True) if panel.id == "tokens"]
    found = results_board.measure(BoardRequest(Late(), panels, Scope("a"), chosen, 1.8e9))
    (shown,) = found.panels
    for line in shown.drawn:
        points = sum(value is not None for value in line.values)
        assert line.values[-1] == 1.0
        assert points * chosen.step_s >= 2 * 60
        assert points <= max(3, 2 * 300 / chosen.step_s + 1)


class Quiet(Stub):
    """Everything is scraped, and nothing happened."""

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        found = super().ask(questions)
        up = QueryResult(tuple(Series((("job", job),), (1.0,)) for job in ("router", "vllm")))
        return found | {name: up for name in found if name.startswith("targets_")}


def test_evidence_ends_now_independent_of_the_grid() -> None:
    """The last point of six hours may be a minute old, and all that happened younger."""
    stub, now = Quiet(QueryResult()), 1.8e9 + 59
    panels = BOARDS["overview"].panels(one=True)
    results_board.measure(BoardRequest(stub, panels, Scope("a"), RANGES["6h"], now))
    moments = [
        question.at for name, question in stub.recorded_questions.items() if "happened_" in name
    ]
    assert moments
    assert min(moments) >= now - queries.SCRAPE_S
