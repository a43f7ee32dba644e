"""Key figures of the last hour, with a sparkline and the change from the hour before.

One round of queries, shared for a few seconds by all viewers of the same endpoints.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from django.urls import reverse

from console.accounts.permissions import Somebody
from console.web.templatetags.emberline import usd
from dashboards.boards import queries
from dashboards.boards.answers import CACHE
from dashboards.boards.charts.series import format_value
from dashboards.boards.panels.declarations import Unit
from dashboards.boards.queries import Scope, Times
from dashboards.boards.results import evidence, targets
from dashboards.boards.results.board import make_fault_message
from dashboards.costs.formulas.price_terms import parse_stored_needs
from dashboards.costs.formulas.savings import rate
from dashboards.costs.prices.machines import occupied_machines
from dashboards.prometheus.http.client import Asker, Join, QueryResult, Question, Series, Window
from dashboards.prometheus.http.federation import Federated
from endpoints import selectors

HOUR_S: Final = 3600
CACHED_S: Final = 15
MAX_WINDOWS_READ: Final = 5_000  # two periods every 15 s; larger fleets use rules or estimates
_NOTHING_NEW: Final = queries.growth.Appeared(frozenset())
_STEP_S: Final = 120
_WORKERS_STEP_S: Final = 300
_SMALLEST_CHANGE: Final = 0.005

Direction = Literal["up", "down", "same"]
Verdict = Literal["better", "worse", ""]
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """Declaration of a figure. `better`: the direction that is an improvement."""

    key: str
    label: str
    unit: Unit
    join: Join
    better: Direction = "same"


REQUESTS = Figure("requests_total", "Requests/s", "per_s", "sum")
HIT_RATE = Figure("reuse", "Cache hit rate (prompt tokens)", "share", "apart", "up")
TTFT = Figure("ttft_p90", "TTFT p90", "seconds", "max", "down")
COST = Figure("cost", "Current hourly cost", "usd_hour", "sum", "down")
_MEASURED = (REQUESTS, HIT_RATE, TTFT)
# Weights of several sources' hit rates.
_PROMPT_TOKENS = "prompt_tokens"
_REQUESTS = "requests_total"


@dataclass(frozen=True, slots=True)
class Change:
    text: str
    direction: Direction
    verdict: Verdict

    @property
    def spoken(self) -> str:
        if self.direction == "same":
            return "unchanged from the previous hour"
        how = "higher" if self.direction == "up" else "lower"
        judged = f", {self.verdict}" if self.verdict else ""
        return f"{self.text} {how} than in the previous hour{judged}"


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Small chart beside a figure. `shapes`: points of polylines in a box of 100 x 30."""

    shapes: tuple[str, ...]
    spoken: str


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """Figure on the Overview. `latest`: value at the end of the sparkline. `note`: why there is no
    value.
    """

    key: str
    label: str
    value: str
    url: str
    latest: str = ""
    change: Change | None = None
    sparkline: Sparkline | None = None
    note: str = ""
    note_url: str = ""


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """Figures of the Overview. `why`: reason that no metric is available. `missing`: reason of
    partial values.
    """

    cost: KeyFigure
    measured: tuple[KeyFigure, ...] = ()
    why: str = ""
    missing: str = ""

    @property
    def figures(self) -> tuple[KeyFigure, ...]:
        return (*self.measured, self.cost)


@dataclass(frozen=True, slots=True)
class Measurements:
    """Answers by figure: totals of this hour and the one before, and the points of this hour.
    `workers`: known workers of each endpoint over both hours.
    """

    now: Mapping[str, QueryResult]
    before: Mapping[str, QueryResult]
    points: Mapping[str, QueryResult]
    workers: QueryResult

    @property
    def is_comparable(self) -> bool:
        """Return whether the hour before was scraped from its beginning."""
        begin = HOUR_S // _WORKERS_STEP_S // 4
        return any(
            value is not None for series in self.workers.series for value in series.values[:begin]
        )


def load_key_figures(asker: Asker, scope: Scope, viewer: Somebody) -> KeyFigures:
    """Return the figures; prices are read anew, metrics at most every `CACHED_S`."""
    source = asker.parts if isinstance(asker, Federated) else asker
    measurements: Measurements = CACHE.get(
        ("key figures", source, scope), CACHED_S, lambda: measure(asker, scope, time.time())
    )
    cost = _make_cost(measurements, viewer, scope.endpoint)
    faults = [answer.fault for answer in measurements.now.values() if answer.fault]
    if len(faults) == len(measurements.now):
        return KeyFigures(cost, why=faults[0].detail)
    answers = (
        *measurements.now.values(),
        *measurements.before.values(),
        *measurements.points.values(),
        measurements.workers,
    )
    missing = {fault.detail for answer in answers for fault in answer.missing}
    one = scope.endpoint
    boards = reverse("dashboards:endpoint", args=[one]) if one else reverse("dashboards:fleet")
    measured = tuple(_make_measured(figure, measurements, boards) for figure in _MEASURED)
    return KeyFigures(cost, measured, missing=" ".join(sorted(missing)))


def measure(asker: Asker, scope: Scope, now: float) -> Measurements:
    joins: dict[str, Join] = {figure.key: figure.join for figure in _MEASURED} | {
        _PROMPT_TOKENS: "apart"
    }
    names = tuple(joins)
    periods = evidence.plan_recent_totals(asker, scope, names, HOUR_S, now, 2, MAX_WINDOWS_READ)
    window = Window.ending(now, HOUR_S, _STEP_S)
    times = Times(_STEP_S, HOUR_S, targets.get_interval_s(asker, scope, now))
    questions = {
        f"{number} {name}": replace(question, join=joins[name])
        for number, period in enumerate(periods)
        for name, question in period.items()
    }
    for figure in _MEASURED:
        text = queries.render_for_chart(figure.key, scope, times, _NOTHING_NEW)
        questions[f"points {figure.key}"] = Question(text, window.end, window, figure.join)
    both = Window.ending(now, 2 * HOUR_S, _WORKERS_STEP_S)
    questions["workers"] = Question(queries.cost.workers(scope), both.end, both, "sum")
    answers = asker.ask(questions)

    def pick(kind: str, names: Iterable[str]) -> dict[str, QueryResult]:
        return {name: answers[f"{kind} {name}"] for name in names}

    points = pick("points", (figure.key for figure in _MEASURED))
    return Measurements(pick("0", joins), pick("1", joins), points, answers["workers"])


def _make_measured(figure: Figure, found: Measurements, url: str) -> KeyFigure:
    answer = found.now[figure.key]
    value = _join_sources(answer.series, found.now[_PROMPT_TOKENS])
    if value is None:
        rates = [series.latest for series in found.now[_REQUESTS].series]
        is_idle = bool(rates) and not any(rates)
        note = "No caller requests in the last hour" if is_idle else "No data in the last hour"
        if answer.fault:
            note = make_fault_message(answer.fault).title
        return KeyFigure(figure.key, figure.label, "–", url, note=note)
    earlier = None
    if found.is_comparable:
        before = found.before[figure.key]
        earlier = _join_sources(before.series, found.before[_PROMPT_TOKENS])
    points = _join_points(found.points[figure.key].series, found.now[_PROMPT_TOKENS])
    return KeyFigure(
        figure.key,
        figure.label,
        _format(figure, value),
        url,
        _format_latest(figure, points),
        compare(figure, value, earlier),
        draw(figure, points),
    )


def _make_cost(found: Measurements, viewer: Somebody, name: str) -> KeyFigure:
    """Price the workers of the named endpoint, "" for all of the viewer's; endpoints without a
    price are left out.
    """
    catalogue = occupied_machines()
    rows = selectors.endpoints(viewer).select_related(None).select_related("status")
    if name:
        rows = rows.filter(name=name)
    prices: dict[str, float] = {}
    unpriced, total = 0, 0.0
    for row in rows.only("name", "spec", "status__ready_replicas"):
        price = rate(parse_stored_needs(row.spec), catalogue).usd_hour
        if price is not None:
            prices[row.name] = price
            total += price * row.status.ready_replicas
        elif row.status.ready_replicas:
            unpriced += 1
    url = reverse("dashboards:costs")
    if not prices:
        note, there = "Set a price", url
        return KeyFigure(COST.key, COST.label, "–", url, note=note, note_url=there)
    points = _price_points(found.workers.series, prices)
    half = len(points) // 2
    earlier = [value for value in points[:half] if value is not None]
    change = None
    if found.is_comparable and earlier and points[-1] is not None:
        change = compare(COST, points[-1], sum(earlier) / len(earlier))
    some = "1 endpoint" if unpriced == 1 else f"{unpriced} endpoints"
    return KeyFigure(
        COST.key,
        COST.label,
        _format(COST, total),
        url,
        change=change,
        sparkline=draw(COST, points[half:]),
        note=f"{some} without a price" if unpriced else "",
        note_url=url if unpriced else "",
    )


def _price_points(workers: Sequence[Series], prices: Mapping[str, float]) -> list[float | None]:
    """Return USD/h at each point; None where no priced worker is known."""
    priced = [
        (worker.values, prices[worker.label("endpoint_name")])
        for worker in workers
        if worker.label("endpoint_name") in prices
    ]
    length = max((len(values) for values, _ in priced), default=0)
    return [
        _sum(
            None if values[index] is None else (values[index] or 0) * price
            for values, price in priced
        )
        for index in range(length)
    ]


def _sum(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def _join_sources(series: Sequence[Series], weights: QueryResult) -> float | None:
    """Return the only series' value, or the mean of several sources by their prompt tokens."""
    return _weigh([(series_item.latest, _weight(series_item, weights)) for series_item in series])


def _join_points(series: Sequence[Series], weights: QueryResult) -> list[float | None]:
    length = max((len(points.values) for points in series), default=0)
    weighed = [(points.values, _weight(points, weights)) for points in series]
    return [
        _weigh([(values[index], weight) for values, weight in weighed]) for index in range(length)
    ]


def _weight(series: Series, weights: QueryResult) -> float:
    return next(
        (weight.latest or 0.0 for weight in weights.series if weight.labels == series.labels), 1.0
    )


def _weigh(values: Sequence[tuple[float | None, float]]) -> float | None:
    present = [(value, weight) for value, weight in values if value is not None]
    if len(present) < 2:
        return present[0][0] if present else None
    whole = sum(weight for _, weight in present)
    return sum(value * weight for value, weight in present) / whole if whole else present[0][0]


def compare(figure: Figure, value: float, earlier: float | None) -> Change | None:
    """Return the change in percent, of shares in percentage points; None without a base."""
    if earlier is None:
        return None
    if figure.unit == "share":
        size, text = value - earlier, f"{abs(value - earlier) * 100:.1f} points"
    elif earlier:
        size = value / earlier - 1
        text = f"{abs(size) * 100:.0f} %" if abs(size) < 10 else f"{value / earlier:.0f}x"
    elif value:
        return Change("No value before", "same", "")
    else:
        size, text = 0.0, ""
    if abs(size) < _SMALLEST_CHANGE:
        return Change("No change", "same", "")
    direction: Direction = "up" if size > 0 else "down"
    if figure.better == "same":
        return Change(text, direction, "")
    return Change(text, direction, "better" if direction == figure.better else "worse")


def draw(figure: Figure, values: Values) -> Sparkline | None:
    """Return a line interrupted where values are missing. Its axis spans at least a fifth of the
    highest value, so that noise stays flat.
    """
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return None
    low, high = min(present), max(present)
    span = max(2 * (high - low), high / 5) or 1.0
    base = max(0.0, high - 0.75 * span)
    runs: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            y = 29 - 28 * (value - base) / span
            runs[-1].append(f"{100 * index / (len(values) - 1):.1f},{y:.1f}")
    shapes = tuple(" ".join(run if len(run) > 1 else run * 2) for run in runs if run)
    lowest, highest, last = (_format(figure, number) for number in (low, high, present[-1]))
    return Sparkline(shapes, f"Last hour: lowest {lowest}, highest {highest}, latest {last}")


def _format_latest(figure: Figure, points: Values) -> str:
    value = next((point for point in reversed(points) if point is not None), None)
    return "" if value is None else _format(figure, value)


def _format(figure: Figure, value: float) -> str:
    if figure.unit == "usd_hour":
        return usd(value)
    return format_value(figure.unit, value).removesuffix("/s")
