"""Panels without data state the reason and the remedy."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.cache import CHUNKS, HIT_RATES
from dashboards.boards.panels.declarations import Panel
from dashboards.boards.panels.exporters import EXPORTERS
from dashboards.boards.panels.gpus import TENSOR
from dashboards.boards.panels.overview import L2, OUTCOME, REUSE, SHARE, SOURCES, TTFT
from dashboards.boards.panels.routing import LAG, MATCH, QUEUED
from dashboards.boards.panels.workers import WAITING
from dashboards.boards.results.targets import VERSION_MARKERS, JobTargets, PanelFacts
from dashboards.boards.results.verdicts import (
    Evidence,
    Points,
    detect_version,
    judge,
    make_price_message,
)
from dashboards.prometheus.http.client import Fault, FaultKind

LAST = 1_700_000_000.0


def facts(panel: Panel, *, known: int = 2, up: int = 2, exports: bool = True) -> PanelFacts:
    job = JobTargets(known, up, LAST if up < known else None)
    return PanelFacts({panel.job: job}, frozenset({panel.metric} if exports else set()))


def test_values_need_no_message() -> None:
    assert judge(SHARE, Points((0.5, 0.0)), facts(SHARE), None) == ("ok", None)


def test_no_events_is_quiet() -> None:
    for panel, numbers in ((OUTCOME, (0.0, 0.0)), (TTFT, ()), (SOURCES, ())):
        state, message = judge(panel, Points(numbers), facts(panel), None, Evidence(caused=0.0))
        assert state == "quiet"
        assert message is not None
        assert panel.cause is not None
        assert (message.text, message.fix) == (panel.cause.none, panel.cause.fix)


def test_cause_without_values_is_reported() -> None:
    """82 requests were routed, and none had to wait."""
    state, message = judge(QUEUED, Points(), facts(QUEUED), None, Evidence(caused=82.0))
    assert state == "quiet"
    assert message is not None
    assert message.text == f"{QUEUED.empty} Requests routed in this range: 82."
    assert message.fix == ""


def test_values_between_chart_points_are_reported() -> None:
    evidence = Evidence(("L2 shared 31 MB",), 1.0)
    for numbers in ((), (0.0,)):
        state, message = judge(CHUNKS, Points(numbers), facts(CHUNKS), None, evidence)
        assert state == "ok"
        assert message is not None
        assert message.title == "Not in the chart"
        assert "L2 shared 31 MB" in message.text


def test_failed_count_is_unknown() -> None:
    evidence = Evidence(caused=0.0, fault="It did not respond in time.")
    state, message = judge(TTFT, Points(), facts(TTFT), None, evidence)
    assert state == "quiet"
    assert message is not None
    assert message.title == "Unknown"
    assert "It did not respond in time." in message.text


def test_measured_zero_is_a_value() -> None:
    """Prompts of which no cache knew a token: to say that none came would be untrue."""
    for panel in (REUSE, MATCH, WAITING):
        state, message = judge(panel, Points((0.0, 0.0)), facts(panel), None)
        assert state == "zero"
        assert message is not None
        assert message.title == "All values are zero"
        assert message.text == panel.zero != ""


def test_every_share_explains_its_zero() -> None:
    """A share is of something that happened: "Nothing happened" would be wrong of its zero."""
    silent = {
        panel.id
        for board in BOARDS.values()
        for one in (False, True)
        for panel in board.panels(one=one)
        if panel.unit == "share" and not panel.zero
    }
    # Of a whole the parts are never all zero; of GPUs it is what one wants.
    assert silent == {"sources", "share", "gpu-idle-share"}


def test_zero_ttft_is_a_value() -> None:
    assert judge(TTFT, Points((0.0,)), facts(TTFT), None) == ("ok", None)


def test_no_scraped_target_is_explained() -> None:
    state, message = judge(SHARE, Points(), facts(SHARE, known=0, up=0), None)
    assert state == "not_scraped"
    assert message is not None
    assert "scrapes no router" in message.text
    assert "/prometheus/targets" in message.fix
    _, about_l2 = judge(L2, Points(), facts(L2, known=0, up=0), None)
    assert about_l2 is not None
    assert "enables L2" in about_l2.fix


def test_unreachable_targets_state_the_time() -> None:
    state, message = judge(TTFT, Points(), facts(TTFT, known=2, up=0), None)
    assert state == "not_scraped"
    assert message is not None
    assert message.title == "No data since Nov 14, 22:13 UTC"
    assert "any of 2 routers" in message.text


def test_last_data_of_unreachable_targets_is_marked_old() -> None:
    state, message = judge(TTFT, Points((0.2,), int(LAST) - 60), facts(TTFT, known=1, up=0), None)
    assert state == "stale"
    assert message is not None
    assert message.title == "No data since Nov 14, 22:12 UTC"


def test_metric_missing_in_this_version() -> None:
    state, message = judge(CHUNKS, Points(), facts(CHUNKS, exports=False), None)
    assert state == "absent"
    assert message is not None
    assert CHUNKS.metric in message.text
    assert "before vLLM 0.13" in message.text
    assert "since vLLM 0.28" in message.fix


def test_metric_disabled_by_configuration() -> None:
    job = PanelFacts({"vllm": JobTargets(1, 1)}, frozenset(metric for _, metric in VERSION_MARKERS))
    state, message = judge(CHUNKS, Points(), job, None)
    assert state == "absent"
    assert message is not None
    assert message.title == "Not exported"
    assert "does not export" in message.text
    assert "version" not in message.text
    assert "since vLLM 0.28, with L1 and L2 on, after the first event" in message.fix


def test_router_without_the_strategy_is_not_called_outdated() -> None:
    _, message = judge(LAG, Points(), facts(LAG, exports=False), None)
    assert message is not None
    assert "version" not in message.title + message.text + message.fix
    assert "with strategy kvaware" in message.fix


def test_version_is_derived_from_exported_metrics() -> None:
    assert detect_version([]) == ("", "0.13")
    for place, (since, metric) in enumerate(VERSION_MARKERS):
        before = VERSION_MARKERS[place - 1][0] if place else ""
        assert detect_version([metric, VERSION_MARKERS[-1][1]]) == (since, before)


def test_one_of_several_metric_names_is_enough() -> None:
    for metric in HIT_RATES.metrics:
        seen = PanelFacts({"vllm": JobTargets(1, 1)}, frozenset({metric}))
        assert judge(HIT_RATES, Points((0.5,)), seen, None) == ("ok", None)


def test_missing_foreign_exporter() -> None:
    titles = set()
    for exporter in EXPORTERS.values():
        panel = replace(TENSOR, needs=exporter.name, metric="something_else")
        state, message = judge(panel, Points(), PanelFacts({}, frozenset()), None)
        assert state == "needs"
        assert message is not None
        assert exporter.name in message.title
        assert message.fix == exporter.how
        state, message = judge(panel, Points(), PanelFacts({}, frozenset({exporter.sign})), None)
        assert state == "absent"
        assert message is not None
        assert message.fix == exporter.more
        titles.add(message.text)
    assert len(titles) == len(EXPORTERS)
    there = PanelFacts({}, frozenset({TENSOR.metric}))
    assert judge(TENSOR, Points((0.0,)), there, None)[0] == "zero"
    state, message = judge(TENSOR, Points(), there, None)
    assert state == "needs", "it speaks of others only"
    assert message is not None
    assert "not for these workers" in message.text
    assert judge(TENSOR, Points((0.5,)), there, None) == ("ok", None)


def test_missing_price() -> None:
    assert "type of a has no price" in make_price_message("worker_usd_hour", ["a"]).text
    many = make_price_message("saved_usd_token", [f"e{n}" for n in range(9)])
    assert "e0, e1, e2, e3, e4 and 4 more:" in many.text
    assert many.title != make_price_message("worker_usd_hour", ["a"]).title


def test_prometheus_failures() -> None:
    titles = {}
    for kind in FaultKind:
        state, message = judge(SHARE, Points(), facts(SHARE), Fault(kind, "no route"))
        assert message is not None
        if kind is not FaultKind.NOT_CONFIGURED:
            assert message.text == "no route"
        assert message.fix
        titles[message.title] = state
    assert len(titles) == len(FaultKind)
    assert set(titles.values()) == {"prometheus", "bad_query", "too_slow"}
