"""A panel without data says which of the reasons it is, and what to do."""

from __future__ import annotations

from dashboards.boards import Facts, Points, Scraped, judge
from dashboards.panels import L2, OUTCOME, SHARE, SOURCES, TTFT, Panel
from dashboards.prom import Fault, FaultKind

LAST = 1_700_000_000.0


def facts(panel: Panel, *, known: int = 2, up: int = 2, exports: bool = True) -> Facts:
    job = Scraped(known, up, LAST if up < known else None)
    return Facts({panel.job: job}, frozenset({panel.metric} if exports else set()))


def test_data_needs_no_words() -> None:
    assert judge(SHARE, Points((0.5, 0.0)), facts(SHARE), None) == ("ok", None)


def test_nothing_happened() -> None:
    for panel, numbers in ((OUTCOME, (0.0, 0.0)), (TTFT, ()), (SOURCES, ())):
        state, message = judge(panel, Points(numbers), facts(panel), None)
        assert state == "zero"
        assert message is not None
        assert message.fix == panel.empty


def test_a_first_token_at_once_is_not_nothing() -> None:
    assert judge(TTFT, Points((0.0,)), facts(TTFT), None) == ("ok", None)


def test_nobody_told_prometheus_of_the_targets() -> None:
    state, message = judge(SHARE, Points(), facts(SHARE, known=0, up=0), None)
    assert state == "not_scraped"
    assert message is not None
    assert "scrapes no router" in message.text
    assert "/prometheus/targets" in message.fix
    _, about_l2 = judge(L2, Points(), facts(L2, known=0, up=0), None)
    assert about_l2 is not None
    assert "turns L2 on" in about_l2.fix


def test_targets_do_not_answer_since() -> None:
    state, message = judge(TTFT, Points(), facts(TTFT, known=2, up=0), None)
    assert state == "not_scraped"
    assert message is not None
    assert message.title == "No data since Nov 14, 22:13 UTC"
    assert "any of 2 workers" in message.text


def test_old_data_of_targets_now_away_is_called_so() -> None:
    state, message = judge(TTFT, Points((0.2,), int(LAST) - 60), facts(TTFT, known=1, up=0), None)
    assert state == "stale"
    assert message is not None
    assert message.title == "No data since Nov 14, 22:12 UTC"


def test_this_version_does_not_export_it() -> None:
    state, message = judge(SOURCES, Points(), facts(SOURCES, exports=False), None)
    assert state == "absent"
    assert message is not None
    assert SOURCES.metric in message.text
    assert "vLLM 0.32" in message.fix


def test_prometheus_itself() -> None:
    titles = {}
    for kind in FaultKind:
        state, message = judge(SHARE, Points(), facts(SHARE), Fault(kind, "told"))
        assert message is not None
        assert message.text == "told"
        assert message.fix
        titles[message.title] = state
    assert len(titles) == len(FaultKind)
    assert set(titles.values()) == {"prometheus", "bad_query", "too_slow"}
