"""Sums of all endpoints by recording rules equal the samples, and are read only where they may."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.boards import queries
from dashboards.boards.panels import BOARDS
from dashboards.boards.queries import Scope, Times, cluster, growth
from dashboards.boards.results import targets
from dashboards.prometheus.config import recording_rules
from tests.dashboards.boards.queries.test_growth_recorded import FIVE, SERIES, promtool, worker
from tests.dashboards.prometheus.config.test_recording_rules import expression_test, of

FLEET = Times(7200, 14_400, kept=(300,), fleet=(300,))
OF_ALL = ("prompt_tokens", "ttft_p90", "reuse", "generated_tokens")
BY_ENDPOINT = ("prompt_tokens_by_endpoint", "reuse_by_endpoint")


def test_sums_of_all_endpoints_equal_samples(tmp_path: Path) -> None:
    questions = []
    for name in OF_ALL:
        raw, short = (
            queries.render_for_chart(name, Scope(), times)
            for times in (replace(FLEET, kept=()), FLEET)
        )
        assert FIVE.fleet in short
        assert "rate(" in raw
        away = f"abs(({short}) / ({raw}) - 1) > 0.03"
        missing = f"(({short}) unless ({raw})) or (({raw}) unless ({short}))"
        questions.append(expression_test(f"({away}) or ({missing})", at="5h"))
    done = promtool(tmp_path, of(SERIES, *questions))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("scope", [Scope("a"), Scope(among=("a", "b"))])
def test_queries_of_some_endpoints_do_not_read_sums_of_all(scope: Scope) -> None:
    for name in (*OF_ALL, *BY_ENDPOINT, *cluster.FLEET_GAUGES):
        assert FIVE.fleet not in queries.render_for_chart(name, scope, FLEET), name


def test_queries_by_endpoint_and_of_unrecorded_sums_read_those_of_endpoints() -> None:
    for name in BY_ENDPOINT:
        assert FIVE.fleet not in queries.render_for_chart(name, Scope(), FLEET)
    assert FIVE.fleet not in queries.render_for_chart("ttft_p90", Scope(), replace(FLEET, fleet=()))


def test_alternatives_are_joined_before_their_sum() -> None:
    """Endpoint `a` exports the old name, `b` the new one: the sum of all has both."""
    assert FIVE.fleet not in queries.render_for_chart("itl_p50", Scope(), FLEET)
    assert FIVE.fleet in queries.render_for_chart("ttft_p50", Scope(), FLEET)


def test_every_queried_sum_is_recorded_with_its_labels() -> None:
    recorded = {
        rule["record"] for family in growth.FAMILIES for rule in recording_rules.make_rules(family)
    }
    counters = recording_rules.list_fleet_counters()
    found = 0
    for board in BOARDS.values():
        for line in (line for panel in board.panels(one=False) for line in panel.lines):
            text = queries.render_for_chart(line.query, Scope(), FLEET)
            for name in {part for part in text.replace("{", "[").split("[") if FIVE.fleet in part}:
                metric = name[name.index(FIVE.fleet) :]
                assert metric in recorded, line.query
                found += 1
    assert found > 20
    assert counters["emberline_router_time_to_first_token_seconds_bucket"] == (
        "cache",
        "le",
        "traffic",
    )
    assert counters["vllm:kv_offload_tiering_chunk_hits_total"] == ("tier",)
    assert "code" in counters["emberline_router_requests_total"]  # of a matcher


def test_sums_since_an_update_do_not_cover_the_range_before(tmp_path: Path) -> None:
    """Rules of the endpoints were there before: those are read then."""
    lacking = growth.count_without_fleet(FIVE, 14_400)
    world = {'up{job="vllm"}': "1x300"}
    done = promtool(tmp_path, of(world, expression_test(lacking, at="5h")))
    assert done.returncode == 0, done.stdout + done.stderr
    never = lacking.replace(FIVE.fleet_scraped, "emberline5m_fleet:never")
    done = promtool(tmp_path, of(world, expression_test(never, ("{}", 49.0), at="5h")))
    assert done.returncode == 0, done.stdout + done.stderr


def test_scrapes_are_looked_for_only_where_values_are_missing(tmp_path: Path) -> None:
    """The rules began after an hour; scrapes before count, up to the last missing moment."""
    world = {'up{job="vllm"}': "1x60 _x240", "begun": "_x60 1x240"}
    missing, uncovered = (
        text.replace(FIVE.scraped, "begun")
        for text in (
            growth.find_missing(FIVE, 18_000),
            growth.count_uncovered(FIVE, 18_000, 18_000 - 3000),
        )
    )
    tests = [
        expression_test(missing, ("{}", 2700.0), at="5h"),
        expression_test(uncovered, ("{}", 10.0), at="5h"),
    ]
    done = promtool(tmp_path, of(world, *tests))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("interval", "samples", "at", "every_s"),
    [
        ("5s", "1x100", "5m", 5),
        ("15s", "1x100", "5m", 15),
        ("60s", "1x100", "5m", 60),
        ("5s", "_x56 1x4", "5m", 5),  # for 20 s
        ("15s", "_x17 1x3", "5m", 15),
    ],
)
def test_scrape_interval_is_read_from_samples(
    tmp_path: Path, interval: str, samples: str, at: str, every_s: int
) -> None:
    world = {worker("up", f"a-{number}"): samples for number in range(3)}
    query = f"round({targets.scraped_every(Scope())})"
    test = of(world, expression_test(query, ("{}", float(every_s)), at=at))
    done = promtool(tmp_path, test | {"interval": interval}, every="1m")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("begins", "is_covered"), [("before", False), ("after", True)])
def test_a_range_that_begins_just_before_the_rules_is_not_covered(
    tmp_path: Path, begins: str, is_covered: bool
) -> None:
    """Rules of the endpoints began after an hour, those of all endpoints after two."""
    world = {'up{job="vllm"}': "1x300", "begun": "_x60 1x240", "later": "_x120 1x180"}
    back_s = {"before": 5 * 60, "after": -6 * 60}[begins]
    queries_of = {
        3600: (growth.find_missing, growth.count_uncovered),
        7200: (growth.count_without_fleet,),
    }
    tests = []
    for began_s, makers in queries_of.items():
        reach_s = 18_000 - began_s + back_s
        for make in makers:
            text = make(FIVE, reach_s).replace(FIVE.fleet_scraped, "later")
            text = text.replace(FIVE.scraped, "begun")
            lacks = f"count({text}) > 0"
            found = () if is_covered else (("{}", 1.0),)
            tests.append(expression_test(lacks, *found, at="5h"))
    done = promtool(tmp_path, of(world, *tests))
    assert done.returncode == 0, done.stdout + done.stderr
