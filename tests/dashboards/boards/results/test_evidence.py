"""Statements of a board about sparse traffic agree with the raw counters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from dashboards.boards import queries
from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.declarations import RANGES
from dashboards.boards.queries import Scope, Times, growth
from dashboards.boards.queries import metric_names as n
from dashboards.boards.results import board as results_board
from dashboards.boards.results import fleet_summary, targets
from dashboards.boards.results.board import BoardRequest, PanelResult
from dashboards.prometheus.http.client import Deadlines, Prometheus, Question
from tests.dashboards.boards.results.sparse import Target, routed, served, write
from tests.support.prometheus import running_prometheus

SHORT = 900
PATIENT = Deadlines(connect_s=30, read_s=60, page_s=110)  # for a machine under load
BOTH = ("vllm", "router")


def _busy(
    endpoint: str, *bursts: tuple[int, int], born: int = 1800, first: int = 0, every: int = 15
) -> list[Target]:
    """A worker and a router which saw so many requests so many seconds ago."""
    worker = Target("vllm", endpoint, [(at, served(count)) for at, count in bursts])
    router = Target("router", endpoint, [(at, routed(count)) for at, count in bursts])
    return [replace(one, born=born, first=first, every=every) for one in (worker, router)]


def _replaced() -> list[Target]:
    """A worker that was replaced after it served, by one that then counted exactly the same."""
    one, other = (Target("vllm", "replaced", [(at, served(3))]) for at in (700, 200))
    one.died, other.born, other.number = 400, 340, 1
    return [one, other, Target("router", "replaced", [(700, routed(3)), (200, routed(3))])]


def _dead() -> list[Target]:
    """The worker which served is gone; one without traffic is there."""
    gone, there = Target("vllm", "dead", [(600, served(4))]), Target("vllm", "dead", number=1)
    gone.died = 500
    return [gone, there, Target("router", "dead", [(600, routed(4))])]


def _failing() -> list[Target]:
    """All traffic came while scrapes failed."""
    found = _busy("failing", (600, 7))
    for target in found:
        target.away = (640, 560)
    return found


TARGETS = [
    *_busy("idle"),
    *_busy("one", (600, 1), every=5),
    *_busy("bursts", (700, 5), (300, 5)),
    *_busy("young", (55, 1), born=60, first=30),
    *_busy("old", (7200, 2), born=7300),
    *_replaced(),
    *_dead(),
    *_failing(),
    Target("vllm", "mixed", [(500, served(94))]),
    Target("router", "mixed", [(800, routed(94, failed=6)), (10, routed(6, failed=6))]),
]
ENDPOINTS = tuple(dict.fromkeys(target.endpoint for target in TARGETS))


@dataclass(frozen=True)
class SparsePrometheus:
    prometheus: Prometheus
    end: int

    @cache  # noqa: B019  # the fixture has module scope
    def shown(self, endpoint: str, length: str, only: str = "") -> dict[str, PanelResult]:
        """Every panel of every board of the endpoint, or `only` one."""
        panels = {
            panel.id: panel
            for board in BOARDS.values()
            for panel in board.panels(one=True)
            if panel.job in BOTH and only in ("", panel.id)
        }
        scope = Scope(endpoint, "default")
        shown = list(panels.values())
        found = results_board.measure(
            BoardRequest(self.prometheus, shown, scope, RANGES[length], self.end)
        )
        assert found.fault is None
        return {one.panel.id: one for one in found.panels}


@pytest.fixture(scope="module")
def sparse_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparsePrometheus]:
    folder = tmp_path_factory.mktemp("sparse")
    end = int(time.time()) // 60 * 60 - 60
    write(TARGETS, end, folder)
    with running_prometheus(folder, "scrape_configs: []\n") as url:
        client = Prometheus(url, PATIENT)
        yield SparsePrometheus(client, end)
        client.close()


def grown(endpoint: str, name: str, back: int = SHORT, **labels: str) -> float:
    mine = (one for one in TARGETS if one.endpoint == endpoint)
    return sum(target.grown(name, back, **labels) for target in mine)


CAUSES = {
    "happened_prompts": n.PROMPT,
    "happened_requests": n.FINISHED,
    "happened_routed": n.DECISIONS,
    "happened_answered": n.REQUESTS,
    "happened_tier_lookups": n.CHUNK_QUERIES,
}


def counters_of(shown: PanelResult) -> set[str]:
    """Of whose growth the panel shows anything; a histogram by the number it saw."""
    texts = [queries.render_plain(line.query, Scope(), Times(5, 900)) for line in shown.panel.lines]
    found = {metric for metric, _ in growth.find_counters(texts)}
    return {
        name.removesuffix("_bucket") + "_count" if "_bucket" in name else name for name in found
    }


# Of an endpoint without traffic, no statement of absence is false.
CASES = [(endpoint, "15m") for endpoint in ENDPOINTS if endpoint != "idle"]
CASES += [("old", "6h"), ("one", "1h"), ("one", "6h"), ("one", "24h")]


@pytest.mark.parametrize(("endpoint", "length"), CASES)
def test_no_statement_of_absence_is_false(
    sparse_prometheus: SparsePrometheus, endpoint: str, length: str
) -> None:
    back = RANGES[length].length_s
    for name, shown in sparse_prometheus.shown(endpoint, length).items():
        message, panel = shown.message, shown.panel
        context = f"{endpoint} {length} {name}: {shown.state} {message}"
        if message is None or shown.state == "ok":
            continue
        if panel.cause is not None and panel.cause.none == message.text:
            assert grown(endpoint, CAUSES[panel.cause.query], back) == 0, context
        if shown.state in ("zero", "quiet") and panel.of_events:
            counted = {one: grown(endpoint, one, back) for one in counters_of(shown)}
            measured = {"tier-failures"}  # its zero is drawn from a counter of lookups
            assert not any(counted.values()) or name in measured, context
        elif shown.state == "quiet" and not message.text.startswith("No values in this chart."):
            # A share or a quantile needs something of each of its counters.
            assert not all(grown(endpoint, one, back) for one in counters_of(shown)), context
        if shown.state == "absent":
            assert not any(grown(endpoint, one, back) for one in panel.metrics), context


# What each endpoint did in the last 15 minutes: these panels have numbers, or say how much it was.
SEEN = (
    *("ttft", "sources", "finished", "tokens", "hits", "reused-tokens", "tier-read"),
    *("tier-written", "chunks", "moved", "load-speed", "tier-lookup", "decisions", "requests"),
    *("ttft-cache", "overhead", "match", "share", "http", "prompt-lengths", "reuse-workers"),
)


@pytest.mark.parametrize("endpoint", ["one", "bursts", "young", "replaced", "dead", "failing"])
def test_rare_events_are_shown(sparse_prometheus: SparsePrometheus, endpoint: str) -> None:
    found = sparse_prometheus.shown(endpoint, "15m")
    silent = {name: found[name].message for name in SEEN if found[name].state != "ok"}
    assert silent == {}
    assert found["queued"].state == "quiet"
    message = found["queued"].message
    assert message is not None
    routed_ = grown(endpoint, n.DECISIONS)
    assert message.text.endswith(f" Requests routed in this range: {routed_:,.0f}.")
    drawn = {name for name in SEEN if any(any(line.numbers) for line in found[name].drawn)}
    if endpoint != "failing":
        assert drawn == set(SEEN)
        return
    message = found["tokens"].message
    assert message is not None
    assert message.title == "Not in the chart"
    assert "Prompt 7000" in message.text


def test_absence_of_events_is_stated(sparse_prometheus: SparsePrometheus) -> None:
    found = sparse_prometheus.shown("idle", "15m")
    for name in ("requests", "ttft", "decisions", "queued", "sources"):
        message = found[name].message
        assert message is not None
        assert message.text == found[name].panel.cause.none  # type: ignore[union-attr]
    absent = found["tier-read"].message
    assert absent is not None
    assert absent.title == "Not exported"
    assert "after the first event" in absent.fix
    lag = found["index-lag"].message
    assert lag is not None
    assert "version" not in lag.title + lag.text + lag.fix
    assert "kvaware" in lag.fix


@pytest.mark.parametrize("endpoint", ["one"])
def test_series_of_a_short_range_is_in_every_longer_one(
    sparse_prometheus: SparsePrometheus, endpoint: str
) -> None:
    before: set[tuple[str, str]] = set()
    for length in ("15m", "1h", "6h", "24h"):
        drawn = {
            (name, line.key)
            for name, shown in sparse_prometheus.shown(endpoint, length).items()
            for line in shown.drawn
            if (any if shown.panel.of_events else len)(line.numbers)
        }
        assert before - drawn == set(), length
        before = drawn


@pytest.mark.parametrize("length", ["15m", "1h"])
def test_figures_cover_the_complete_range(sparse_prometheus: SparsePrometheus, length: str) -> None:
    """Ratios of sums: of 200 requests 12 failed; the last ones all did."""
    shown = sparse_prometheus.shown("mixed", length, only="good")["good"]
    totals = {line.key: line.total for line in shown.drawn}
    failed = grown("mixed", n.REQUESTS, SHORT, code="502")
    every = grown("mixed", n.REQUESTS, SHORT)
    assert totals["failed"] == pytest.approx(failed / every)
    assert totals["reuse"] == pytest.approx(0.896)
    assert totals["on_time"] == pytest.approx(1.0)
    last = {line.key: line.values[-1] for line in shown.drawn}
    assert last["failed"] == 1.0


def test_card_equals_the_figure(
    sparse_prometheus: SparsePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: float(sparse_prometheus.end))
    for endpoint in ("one", "young", "bursts", "replaced", "mixed"):
        card = fleet_summary.summarize_fleet(
            sparse_prometheus.prometheus, Scope(endpoint, "default")
        )
        assert card.why == ""
        assert card.reused_percent == pytest.approx(89.6), endpoint
        requests_s = grown(endpoint, n.REQUESTS) / SHORT
        assert card.requests_s == pytest.approx(requests_s), endpoint
    idle = fleet_summary.summarize_fleet(sparse_prometheus.prometheus, Scope("idle", "default"))
    assert idle.why == "No prompts of callers in the last 15 minutes."


def test_a_pod_younger_than_a_minute_is_known(sparse_prometheus: SparsePrometheus) -> None:
    """Metrics of the cluster's exporters are selected by pod."""
    query = targets.known_pods(Scope("young", "default"), SHORT)
    question = Question(query, sparse_prometheus.end - 10)
    (answer,) = sparse_prometheus.prometheus.ask({"pods": question}).values()
    pods = {series.label("pod") for series in answer.series}
    assert pods == {"young-vllm-0", "young-router-0"}
