"""A panel without data says which of the reasons it is, and what to do."""

from __future__ import annotations

from dataclasses import replace

from dashboards.panels import BOARDS, EXPORTERS, L2, OUTCOME, REUSE, SHARE, SOURCES, TTFT, Panel
from dashboards.panels.cache import CHUNKS
from dashboards.panels.gpus import TENSOR
from dashboards.panels.routing import MATCH
from dashboards.panels.workers import WAITING
from dashboards.prom import Fault, FaultKind
from dashboards.verdicts import MARKS, Facts, Points, Scraped, judge, unpriced, version

LAST = 1_700_000_000.0


def facts(panel: Panel, *, known: int = 2, up: int = 2, exports: bool = True) -> Facts:
    job = Scraped(known, up, LAST if up < known else None)
    return Facts({panel.job: job}, frozenset({panel.metric} if exports else set()))


def test_data_needs_no_words() -> None:
    assert judge(SHARE, Points((0.5, 0.0)), facts(SHARE), None) == ("ok", None)


def test_nothing_happened() -> None:
    for panel, numbers in ((OUTCOME, (0.0, 0.0)), (TTFT, ()), (SOURCES, ()), (MATCH, ())):
        state, message = judge(panel, Points(numbers), facts(panel), None)
        assert state == "quiet"
        assert message is not None
        assert message.title == "Nothing happened"
        assert message.fix == panel.empty


def test_a_measured_zero_is_not_nothing() -> None:
    """Prompts of which no cache knew a token: to say that none came would be untrue."""
    for panel in (REUSE, MATCH, WAITING):
        state, message = judge(panel, Points((0.0, 0.0)), facts(panel), None)
        assert state == "zero"
        assert message is not None
        assert message.title == "Zero all along"
        assert message.fix == panel.zero != ""


def test_every_share_says_what_its_zero_means() -> None:
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
    state, message = judge(CHUNKS, Points(), facts(CHUNKS, exports=False), None)
    assert state == "absent"
    assert message is not None
    assert CHUNKS.metric in message.text
    assert "older than vLLM 0.13" in message.text
    assert "since vLLM 0.28" in message.fix


def test_a_version_which_has_it_was_not_told_to() -> None:
    job = Facts({"vllm": Scraped(1, 1)}, frozenset(metric for _, metric in MARKS))
    state, message = judge(CHUNKS, Points(), job, None)
    assert state == "absent"
    assert message is not None
    assert message.title == "Not turned on"
    assert "it is vLLM 0.32 or newer." in message.text
    assert message.fix == "This version has it, with L1 and L2 on."


def test_the_version_is_told_by_what_is_exported() -> None:
    assert version([]) == ("", "0.13")
    for place, (since, metric) in enumerate(MARKS):
        before = MARKS[place - 1][0] if place else ""
        assert version([metric, MARKS[-1][1]]) == (since, before)


def test_any_of_its_names_will_do() -> None:
    for metric in SOURCES.metrics:
        seen = Facts({"vllm": Scraped(1, 1)}, frozenset({metric}))
        assert judge(SOURCES, Points((0.5,)), seen, None) == ("ok", None)


def test_an_exporter_which_is_not_ours() -> None:
    titles = set()
    for exporter in EXPORTERS.values():
        panel = replace(TENSOR, needs=exporter.name, metric="something_else")
        state, message = judge(panel, Points(), Facts({}, frozenset()), None)
        assert state == "needs"
        assert message is not None
        assert exporter.name in message.title
        assert message.fix == exporter.how
        state, message = judge(panel, Points(), Facts({}, frozenset({exporter.sign})), None)
        assert state == "absent"
        assert message is not None
        assert message.fix == exporter.more
        titles.add(message.text)
    assert len(titles) == len(EXPORTERS)
    there = Facts({}, frozenset({TENSOR.metric}))
    assert judge(TENSOR, Points((0.0,)), there, None)[0] == "zero"
    state, message = judge(TENSOR, Points(), there, None)
    assert state == "needs", "it speaks of others only"
    assert message is not None
    assert "none of the workers shown here" in message.text
    assert judge(TENSOR, Points((0.5,)), there, None) == ("ok", None)


def test_whose_price_is_missing() -> None:
    assert "for a." in unpriced("worker_usd_hour", ["a"]).text
    many = unpriced("saved_usd_token", [f"e{n}" for n in range(9)])
    assert "e0, e1, e2, e3, e4 and 4 more." in many.text
    assert many.title != unpriced("worker_usd_hour", ["a"]).title


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
