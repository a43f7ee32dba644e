"""Console queries with Grafana variables."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.boards.panels.declarations import PanelLine
from dashboards.boards.queries import QUERIES, Scope, Times, render_plain
from dashboards.grafana.export import panel as export_panel
from dashboards.grafana.export.dashboard import list_exports
from tests.dashboards.grafana.export.variables import ALL, DEMO, filled
from tests.support.prometheus import PROMTOOL


def test_endpoint_and_workers_are_variables() -> None:
    assert export_panel.make_template("ttft_p50", one=True) == (
        "histogram_quantile(0.5, sum by (le) (rate("
        'emberline_router_time_to_first_token_seconds_bucket{endpoint="$endpoint",'
        'namespace="$namespace",traffic!="console"}[$__rate_interval])))'
    )
    routed = export_panel.make_template("decisions_by_reason", one=True)
    assert 'endpoint="$endpoint",namespace="$namespace",worker=~"$worker"' in routed


def test_several_endpoints_can_be_selected() -> None:
    requested = export_panel.make_template("requests_by_endpoint", one=False)
    chosen = 'endpoint=~"$endpoint",namespace=~"$namespace",traffic!="console"'
    assert requested.startswith(
        f"sum by (endpoint) (rate(emberline_router_requests_total{{{chosen}}}"
    )
    assert f"{{{chosen}}}[$__range] @ end()" in requested


@pytest.mark.parametrize("one", [True, False])
def test_no_placeholder_remains(one: bool) -> None:
    for query in QUERIES:
        requested = export_panel.make_template(query, one=one)
        assert "grafana-" not in requested, query
        assert "1000003" not in requested, query
        assert "$endpoint" in requested or "endpoint" not in requested, query


def test_expression_with_values_equals_the_console_query() -> None:
    """The same series by the same expression; only patterns stand where an equality was."""
    times = Times(5, 900)
    for query in QUERIES:
        requested = filled(export_panel.make_template(query, one=True), DEMO)
        reported = requested.replace(',pod=~".*"', "").replace(',worker=~".*"', "")
        reported = reported.replace('pod=~".*"', "").replace('worker=~".*"', "")
        ours = render_plain(query, Scope("demo", "default"), times)
        assert reported.replace("{}", "") == ours.replace("{}", ""), query


@pytest.mark.parametrize("text", ["rate(up[{twice}s])", "increase(up[{step}s]) / {hours}"])
def test_untranslatable_number_is_rejected(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def calculates(_scope: Scope, times: Times) -> str:
        return text.format(twice=2 * times.rate_s, step=times.step_s, hours=times.range_s / 3600)

    monkeypatch.setitem(QUERIES, "calculates", calculates)
    with pytest.raises(export_panel.NotExportable, match="calculates"):
        export_panel.make_template("calculates", one=True)


def test_plain_number_of_seconds_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def divides(_scope: Scope, times: Times) -> str:
        return f"sum(increase(up[{times.range_s}s])) / {times.range_s} / {times.rate_s}"

    monkeypatch.setitem(QUERIES, "divides", divides)
    assert export_panel.make_template("divides", one=True) == (
        "sum(increase(up[$__range])) / $__range_s / ($__rate_interval_ms / 1000)"
    )


def test_factors_are_queried_as_metrics() -> None:
    line = PanelLine("reuse_each", by="endpoint_name", factor="saved_usd_token")
    requested = export_panel.export_line(line, one=False)
    assert requested.endswith(
        ") * on (endpoint_name) group_left () "
        "max by (endpoint_name) (emberline_saved_usd_per_token)"
    )


def test_promtool_accepts_every_expression(tmp_path: Path) -> None:
    unlike = {
        filled(export_panel.export_line(line, one=wanted.one), chosen)
        for wanted in list_exports()
        for panel in wanted.panels
        for line in panel.lines
        for chosen in (ALL, DEMO)
    }
    rules = [{"record": f"asked:{n}", "expr": expr} for n, expr in enumerate(sorted(unlike))]
    file = tmp_path / "asked.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "exported", "rules": rules}]}))
    done = subprocess.run([PROMTOOL, "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
