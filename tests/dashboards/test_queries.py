"""Every query is one that Prometheus itself parses, and no caller can widen it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards import panels, queries
from dashboards.queries import Scope

PROMTOOL = shutil.which("promtool") or "/usr/bin/promtool"
BOARDS = {"fleet": panels.FLEET, "endpoint": panels.ENDPOINT, "overview": panels.OVERVIEW}


def every_query() -> list[str]:
    found = {queries.l2_fill()}
    for scope in (Scope(), Scope("demo"), Scope("a-b.c", window_s=240)):
        found |= {queries.targets_up(scope), queries.tokens_all(scope)}
        for board in BOARDS.values():
            found |= {line.query(scope) for panel in board for line in panel.lines}
    return sorted(found)


def test_prometheus_parses_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"q:{number}", "expr": query} for number, query in enumerate(every_query())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    done = subprocess.run([PROMTOOL, "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.parametrize(
    "name",
    ['demo"} or vector(1) #', "a b", "demo\n", 'x",y="', "{}", "-", "a" * 200, "ümläut", "\\"],
)
def test_a_name_that_could_widen_a_query_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="label"):
        Scope(name)
    with pytest.raises(ValueError, match="label"):
        Scope("demo", namespace=name)


def test_an_endpoints_scope_is_in_every_selector() -> None:
    for board in BOARDS.values():
        for panel in board:
            for line in panel.lines:
                query = line.query(Scope("demo"))
                assert query.count("rate(") == query.count('="demo"'), query


def test_the_window_is_never_too_small_for_a_rate() -> None:
    assert "[60s]" in queries.tokens_all(Scope(window_s=5))
    assert "[240s]" in queries.tokens_all(Scope(window_s=240))


@pytest.mark.parametrize("quantile", [0, 1, -1, 50])
def test_a_quantile_is_between_zero_and_one(quantile: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        queries.ttft_quantile(Scope(), quantile)


def test_ranges_stay_within_the_points_a_chart_gets() -> None:
    for choice in panels.RANGES:
        assert choice.seconds % choice.step == 0
        assert choice.seconds / choice.step <= 360
    assert panels.find_range("6h").seconds == 21_600
    assert panels.find_range("'; drop").key == "15m"


def test_panels_of_a_board_have_ids_of_their_own() -> None:
    for board in BOARDS.values():
        ids = [panel.id for panel in board]
        assert len(ids) == len(set(ids))
