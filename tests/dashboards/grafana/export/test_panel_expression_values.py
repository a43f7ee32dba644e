"""Grafana and console queries return equal values from a real Prometheus."""

from __future__ import annotations

import time

import pytest

from dashboards.boards import queries
from dashboards.boards.queries import Scope, Times
from dashboards.grafana.export import panel as export_panel
from dashboards.grafana.export.dashboard import list_exports
from dashboards.prometheus.http.client import Deadlines, Prometheus, QueryResult, Question, Window
from tests.dashboards.grafana.export.variables import ALL, DEMO, filled
from tests.support.dashboards.fixtures import Scraping

WINDOW_S, STEP_S = 900, 5  # what tests.dashboards.grafana.export.variables says of times


def same(one: QueryResult, other: QueryResult) -> bool:
    """But for the order in which Prometheus adds up."""
    if [series.labels for series in one.series] != [series.labels for series in other.series]:
        return False
    pairs = zip(one.series, other.series, strict=True)
    return all(list(a.values) == pytest.approx(list(b.values), nan_ok=True) for a, b in pairs)


def test_every_series_of_every_board_has_its_value(scraping: Scraping) -> None:
    # Ended a second ago: between two questions no scrape adds to it.
    window = Window.ending(time.time() - 1, WINDOW_S, STEP_S)
    times = Times(STEP_S, window.length_s)
    requested: dict[str, Question] = {}
    for wanted in list_exports():
        chosen, scope = (DEMO, Scope("demo", "default")) if wanted.one else (ALL, Scope())
        for line in (line for panel in wanted.panels for line in panel.lines):
            theirs = filled(export_panel.make_template(line.query, one=wanted.one), chosen)
            ours = queries.render_for_chart(line.query, scope, times)
            requested[f"{wanted.uid} {line.query} theirs"] = Question(theirs, window.end, window)
            requested[f"{wanted.uid} {line.query} ours"] = Question(ours, window.end, window)
    client = Prometheus(scraping.url, Deadlines(read_s=60, page_s=90))  # some 300 questions at once
    found = client.ask(requested)
    client.close()
    for name in requested:
        assert found[name].fault is None, f"{name}: {found[name].fault}"
        if name.endswith(" theirs"):
            assert same(found[name], found[f"{name.removesuffix('theirs')}ours"]), name
    assert sum(bool(answer.series) for answer in found.values()) > len(found) / 4


def test_variables_offer_existing_values(scraping: Scraping) -> None:
    """`label_values` is Grafana's own; its metric must have the label."""
    client = Prometheus(scraping.url)
    series = 'up{job="vllm",namespace="default",endpoint_name="demo"}'
    questions = {
        "endpoint_name": 'count by (endpoint_name) (up{endpoint_name!="",namespace=~".+"})',
        "namespace": 'count by (namespace) (up{endpoint_name!=""})',
        "pod": f"count by (pod) ({series})",
    }
    found = client.ask({name: Question(text, int(time.time())) for name, text in questions.items()})
    client.close()
    values = {name: {one.label(name) for one in found[name].series} for name in questions}
    assert {"demo", "idle", "old"} <= values["endpoint_name"]
    assert values["namespace"] == {"default"}
    assert values["pod"] == {"demo-vllm-0"}
