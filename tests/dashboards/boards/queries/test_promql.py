"""Expressions are valid PromQL, and input cannot change their meaning."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.boards import panels, queries
from dashboards.boards.queries import QUERIES, Scope, Times, growth, promql
from dashboards.boards.results import targets
from tests.support.prometheus import PROMTOOL

SCOPES = (Scope(), Scope("demo"), Scope('a"} or vector(1) #', "line\nfeed \\"))
RECORDED = Times(14_400, 7 * 86_400, kept=(3600, 300))
TIMES = [Times(choice.step_s, choice.length_s) for choice in panels.RANGES.values()]


def promtool(file: Path, expressions: list[str]) -> subprocess.CompletedProcess[str]:
    rules = [{"record": f"r{n}", "expr": text} for n, text in enumerate(expressions)]
    file.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    return subprocess.run([PROMTOOL, "check", "rules", file], capture_output=True, text=True)


def test_promtool_accepts_every_expression(tmp_path: Path) -> None:
    metrics = ("vllm:prompt_tokens_total", "emberline_l2_used_bytes")
    expressions = [
        queries.render_for_chart(name, scope, times)
        for name in QUERIES
        for scope in SCOPES
        for times in TIMES
    ]
    for name in QUERIES:
        declared = growth.render_declared(name, Scope(), RECORDED)
        expressions.append(growth.render_every(name, Scope(), RECORDED))
        if values := promql.split_ranking(declared)[2]:
            expressions.append(growth.rewrite_ranking(values, RECORDED))
    assert any("emberline5m_now:vllm:num_requests_waiting{}[600s])[" in one for one in expressions)
    for scope in SCOPES:
        expressions.append(targets.exported(metrics, scope.engines()))
        expressions.append(targets.last_up(scope, promql.JOBS))
        expressions += [question.query for question in targets.plan_facts([], scope, 0).values()]
    done = promtool(tmp_path / "rules.json", expressions)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(expressions)} rules found" in done.stdout


def test_checker_detects_a_broken_expression(tmp_path: Path) -> None:
    assert promtool(tmp_path / "rules.json", ["sum(rate(x[5s])"]).returncode != 0


def test_endpoint_is_selected_by_the_label_of_its_exporter() -> None:
    times, demo = Times(5, 900), Scope("demo")
    assert '{endpoint_name="demo",namespace="default"}' in queries.render_for_chart(
        "ttft_p90", demo, times
    )
    assert '{endpoint="demo",namespace="default"}' in queries.render_for_chart(
        "decisions_by_reason", demo, times
    )
    assert "endpoint" not in queries.render_for_chart("decisions_by_reason", Scope(), times)


@given(st.text())
def test_escaped_value_ends_at_its_quote(value: str) -> None:
    shown = promql.escape_label(value)
    assert "\n" not in shown
    # Without its escape pairs there is no quote left that could end the string.
    bare = shown.replace("\\\\", "").replace('\\"', "").replace("\\n", "").replace("\\r", "")
    assert '"' not in bare
    assert "\\" not in bare


def test_metric_names_never_come_from_input() -> None:
    with pytest.raises(ValueError, match="not the name of a label"):
        promql.selector({'a="b",c': "x"})
    with pytest.raises(ValueError, match="not the name of a metric"):
        targets.exported(("up|.*",), "")
    with pytest.raises(ValueError, match="are not among"):
        targets.last_up(Scope(), (".*",))


def test_every_ranking_can_be_separated() -> None:
    ranked, evil = 0, " and on (x) topk(12, "
    for name, query in QUERIES.items():
        for scope in (Scope(), Scope(f"a{evil}(")):
            text = query(scope, TIMES[0])
            every, label, values = promql.split_ranking(text)
            assert "topk" not in every.replace(evil, ""), name
            ranked += bool(label)
            if label:
                assert values.startswith(f"sum by ({label}) ("), name
                assert values.endswith(" @ end()))"), name
                assert f" and on ({label}) topk({promql.TOP}, {values})" in text
            else:
                assert every == text
    assert ranked >= 40


@pytest.mark.parametrize(("step_s", "rate_s"), [(5, 20), (10, 20), (40, 40), (180, 180)])
def test_rate_windows_cover_four_scrapes_and_a_step(step_s: int, rate_s: int) -> None:
    assert Times(step_s, 3600).rate_s == rate_s


@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("key", panels.BOARDS)
def test_every_panel_uses_existing_queries(key: str, one: bool) -> None:
    board = panels.BOARDS[key].panels(one=one)
    for panel in board:
        assert panel.lines
        assert {line.query for line in panel.lines} <= set(QUERIES)
    assert len({panel.id for panel in board}) == len(board)
