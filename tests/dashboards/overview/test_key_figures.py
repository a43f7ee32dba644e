"""Key figures: values, changes and sparklines from known results; price and visibility of costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from console.catalogue.instance_types import INSTANCE_TYPES
from dashboards.boards.queries import Scope
from dashboards.boards.results import targets as scraped_targets
from dashboards.costs.formulas.price_terms import THIS_MACHINE
from dashboards.overview import key_figures
from dashboards.overview.key_figures import COST, HIT_RATE, REQUESTS, TTFT, Change
from dashboards.prometheus.http.client import Fault, FaultKind, QueryResult, Question, Series
from dashboards.prometheus.sources import selectors as connections
from dashboards.selectors import get_fleet_scope
from endpoints.models import Endpoint
from tests.support import teams as people
from tests.support.browser import watch
from tests.support.console import browser, make_endpoint, person, pretend_ready

pytestmark = pytest.mark.django_db
PRICE = {"vcpus": 4, "memory_gib": 16, "price_usd_hour": 2.0, "price_date": "2026-01-01"}
AWAY = Fault(FaultKind.UNREACHABLE, "Prometheus at http://127.0.0.1:9 is unreachable.")
# Of this hour and of the one before.
VALUES: dict[str, tuple[float | None, float | None]] = {
    "requests_total": (3.0, 2.0),
    "reuse": (0.6, 0.65),
    "ttft_p90": (0.4, 0.5),
    "prompt_tokens": (100.0, 100.0),
}


def one(*values: float | None, **labels: str) -> Series:
    return Series(tuple(sorted(labels.items())), values)


@dataclass
class Answers:
    """Prometheus with fixed values; `workers` by endpoint at each point of both hours."""

    values: Mapping[str, tuple[float | None, float | None]] = field(
        default_factory=lambda: dict(VALUES)
    )
    workers: Mapping[str, tuple[float | None, ...]] = field(
        default_factory=lambda: {"demo": (1.0,) * 12 + (2.0,) * 13}
    )
    fault: Fault | None = None
    apart: tuple[Series, ...] = ()
    rounds: list[Mapping[str, Question]] = field(default_factory=list)

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.rounds.append(questions)
        if self.fault:
            return dict.fromkeys(questions, QueryResult(fault=self.fault))
        return {key: QueryResult(self._series(key)) for key in questions}

    def _series(self, key: str) -> tuple[Series, ...]:
        if key == "workers":
            return tuple(one(*v, endpoint_name=name) for name, v in self.workers.items())
        kind, _, name = key.partition(" ")
        if name not in self.values:
            return ()
        if name in ("reuse", "prompt_tokens") and self.apart and kind == "0":
            return self.apart if name == "reuse" else tuple(_weights(self.apart))
        now, before = self.values[name]
        if kind == "points":
            return () if now is None else (one(now / 2, None, now, now),)
        value = now if kind == "0" else before
        return () if value is None else (one(value),)

    def __hash__(self) -> int:
        return id(self)


def _weights(apart: tuple[Series, ...]) -> list[Series]:
    return [Series(series.labels, (10.0 ** (number * 2),)) for number, series in enumerate(apart)]


def load(asker: Answers, role: str = "viewer") -> key_figures.KeyFigures:
    return key_figures.load_key_figures(asker, Scope(), person(role))


def by_key(found: key_figures.KeyFigures) -> dict[str, key_figures.KeyFigure]:
    return {figure.key: figure for figure in found.figures}


def test_each_figure_has_value_change_and_sparkline() -> None:
    found = by_key(load(Answers()))
    requests, rate, ttft = (found[one.key] for one in (REQUESTS, HIT_RATE, TTFT))
    assert (requests.value, rate.value, ttft.value) == ("3.00", "60.0 %", "400 ms")
    assert requests.change == Change("50 %", "up", "")
    assert rate.change == Change("5.0 points", "down", "worse")
    assert ttft.change == Change("20 %", "down", "better")
    assert ttft.change.spoken == "20 % lower than in the previous hour, better"
    assert requests.sparkline is not None
    assert len(requests.sparkline.shapes) == 2, "a gap interrupts the line"
    assert requests.sparkline.spoken == "Last hour: lowest 1.50, highest 3.00, latest 3.00"


def test_one_round_is_shared_by_viewers_of_the_same_endpoints() -> None:
    asker = Answers()
    load(asker)
    load(asker, "admin")
    own = [requested for requested in asker.rounds if "scraped" not in requested]
    assert [len(requested) for requested in own] == [2 * len(VALUES) + 3 + 1]
    key_figures.load_key_figures(asker, Scope(among=("demo",)), person("viewer"))
    assert sum("scraped" not in requested for requested in asker.rounds) == 2


def test_large_fleets_are_not_queried_window_by_window(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    for targets in (3, 500):
        monkeypatch.setattr(scraped_targets, "count_targets", lambda *_, n=targets: n)
        asker = Answers(fault=AWAY)
        key_figures.measure(asker, Scope(), 1e9)
        texts.append(asker.rounds[-1]["0 reuse"].query)
    assert ":30s]" in texts[0]
    assert ":30s]" not in texts[1]


def test_incomplete_previous_hour_gives_no_comparison() -> None:
    young = Answers(workers={"demo": (None,) * 10 + (1.0,) * 15})
    assert all(figure.change is None for figure in load(young).figures)


def test_figure_without_data_is_marked_and_the_others_stay() -> None:
    found = by_key(load(Answers(VALUES | {"ttft_p90": (None, 0.5)})))
    assert (found["ttft_p90"].value, found["ttft_p90"].note) == ("–", "No data in the last hour")
    assert found["requests_total"].value == "3.00"
    idle = VALUES | {"ttft_p90": (None, 0.5), "requests_total": (0.0, 1.0)}
    found = by_key(load(Answers(idle)))
    assert found["ttft_p90"].note == "No caller requests in the last hour"


def test_missing_prometheus_is_reported_once() -> None:
    found = load(Answers(fault=AWAY))
    assert found.why == AWAY.detail
    assert [figure.key for figure in found.figures] == ["cost"]


def test_hit_rates_of_several_sources_are_weighted_by_tokens() -> None:
    apart = (one(0.0, metrics_source="a"), one(1.0, metrics_source="b"))
    assert by_key(load(Answers(apart=apart)))["reuse"].value == "99.0 %"


def test_cost_needs_prices_and_follows_the_workers() -> None:
    pretend_ready(make_endpoint(replicas=2), workers={"w-0": "http://x", "w-1": "http://y"})
    unpriced = by_key(load(Answers()))["cost"]
    assert (unpriced.value, unpriced.note) == ("–", "Set a price")
    INSTANCE_TYPES.save(person("admin"), THIS_MACHINE, PRICE)
    cost = by_key(load(Answers()))["cost"]
    assert cost.value != "–"
    assert cost.change == Change("100 %", "up", "worse")
    assert cost.sparkline is not None
    assert load(Answers(fault=AWAY)).cost.value == cost.value, "prices need no Prometheus"


def test_team_sees_the_cost_of_its_own_endpoints() -> None:
    made = people.teams()
    people.their_endpoints(made)
    INSTANCE_TYPES.save(person("admin"), THIS_MACHINE, PRICE)
    for name in (people.OURS, people.CANARY):
        pretend_ready(Endpoint.objects.get(name=name), workers={f"{name}-0": "http://x"})
    asker = Answers(workers=dict.fromkeys((people.OURS, people.CANARY), (1.0,) * 25))

    def cost(viewer: object) -> key_figures.KeyFigure:
        return key_figures.load_key_figures(asker, get_fleet_scope(viewer), viewer).cost

    assert cost(person("viewer")).value != cost(made.frank).value == cost(made.hugo).value
    assert cost(made.nora).value == "–"
    ours = key_figures.load_key_figures(asker, Scope(people.OURS), person("viewer")).cost
    assert ours.value == cost(made.frank).value, "one endpoint's, whoever looks"


@pytest.mark.parametrize(
    ("value", "earlier", "change"),
    [
        (1.0, None, None),
        (1.0, 1.001, Change("No change", "same", "")),
        (0.0, 0.0, Change("No change", "same", "")),
        (1.0, 0.0, Change("No value before", "same", "")),
        (50.0, 1.0, Change("50x", "up", "worse")),
        (0.0, 1.0, Change("100 %", "down", "better")),
    ],
)
def test_changes(value: float, earlier: float | None, change: Change | None) -> None:
    assert key_figures.compare(COST, value, earlier) == change


def test_sparklines_fit_their_box() -> None:
    for values in ([0.0, 0.0], [5.0, 5.0], [0.0, 9.0, 1.0], [1.0, None, 1.001], [1e9, 1e-9]):
        drawn = key_figures.draw(REQUESTS, values)
        assert drawn is not None
        points = [point.split(",") for shape in drawn.shapes for point in shape.split()]
        assert all(0 <= float(x) <= 100 and 0 <= float(y) <= 30 for x, y in points), values
    assert key_figures.draw(REQUESTS, [1.0]) is None


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_tiles_have_equal_heights_and_first_steps_expand_by_keyboard(
    chrome: Browser, live_server: LiveServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No value wraps at desk widths; the saving survives a refresh of the tiles."""
    asker = Answers()
    monkeypatch.setattr(connections, "fleet", lambda: asker)
    INSTANCE_TYPES.save(person("admin"), THIS_MACHINE, PRICE)
    pretend_ready(make_endpoint(), workers={"w-0": "http://127.0.0.1:1"})
    it = watch(chrome, live_server.url)
    cookie = browser("viewer").cookies[settings.SESSION_COOKIE_NAME]
    it.page.context.add_cookies(
        [{"name": cookie.key, "value": cookie.value, "url": live_server.url}]
    )
    it.page.goto(live_server.url)
    expect(it.page.locator("#saving")).to_contain_text("No cached tokens")
    for width in (1280, 1366):
        it.page.set_viewport_size({"width": width, "height": 844})
        boxes = [card.bounding_box() for card in it.page.locator(".key-figure").all()]
        assert len({(box["y"], box["height"]) for box in boxes if box}) == 1, width
        heads = [
            value.evaluate("node => node.closest('div').getClientRects()[0].height")
            for value in it.page.locator(".key-figure .h1").all()
        ]
        assert max(heads) < 40, f"a value wraps at {width} px"
    with it.page.expect_response("**/overview/numbers"):
        it.page.evaluate("htmx.trigger('#numbers', 'load')")
    expect(it.page.locator("#saving")).to_contain_text("No cached tokens")
    it.page.locator(".guide > summary").focus()
    it.page.keyboard.press("Enter")
    expect(it.page.get_by_text("Inference key", exact=True)).to_be_visible()
    assert it.fits()
    assert it.complaints == []
