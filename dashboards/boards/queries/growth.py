"""Render queries with the exact growth of counters, from samples or from recording rules.

`rate` and `increase` miss a counter's value at its first sample (a series that appears with the
value 5 grew by 5) and growth between the last sample of one window and the first of the next.
Rendering replaces them:

- For charts: `rate` over a window that overlaps the previous one, plus the whole value of a series
  that appeared. It costs five times a `rate` and is limited to targets that added series within the
  range, or, if those are many, to counters of which a series appeared.
- For totals and recording rules: the last value within a window less the value before it, so that
  consecutive windows add up to the exported count.

A series appeared if its target was scraped without it before the window, or if its process is young
and its target was never scraped; otherwise Prometheus is new or could not reach the target. A lower
value than before is a counter reset and counts in full.

Recording rules replace the samples of ranges of hours and weeks with equal results over whole
steps: a rule records the growth per second within its last interval, and a sum over time gives the
total. Queries without a worker label read sums over workers, so their cost is independent of the
number of workers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dashboards.boards.queries import fleet_sums
from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    JOBS,
    QUERIES,
    Scope,
    Times,
    escape_label,
    get_part_s,
    split_ranking,
)

GROWTH_CALL: Final = re.compile(
    r"\b(rate|increase)\(([a-zA-Z_:][\w:]*)(\{[^{}]*\})?\[(\d+)([smhd])\]( @ end\(\))?\)"
)
FINE_S: Final = 60
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_YOUNG_S: Final = 1800
_LAPSE_S: Final = 300  # s; longest scrape outage bridged between two values
_COVERAGE_SAMPLES: Final = 300
_TARGET: Final = "on (job, instance)"


@dataclass(frozen=True, slots=True)
class Appeared:
    """Where series may have appeared: counters and scraped instances; None means any. Counters of
    the cluster's exporters come from other instances: `exporters` are those that may have.
    """

    counters: frozenset[str] | None = None
    instances: tuple[str, ...] | None = None
    exporters: frozenset[str] | None = None

    def select(self, metric: str, braces: str) -> str | None:
        """Return the selector of series that may have appeared, None without any."""
        is_exporter = metric.startswith(_FROM_CLUSTER)
        counters = self.exporters if is_exporter and self.counters is None else self.counters
        if counters is not None and metric not in counters:
            return None
        if self.instances is None or is_exporter:
            return f"{metric}{braces}"
        if not self.instances:
            return None
        names = escape_label("|".join(map(re.escape, self.instances)))
        inside = ",".join(filter(None, [braces[1:-1], f'instance=~"{names}"']))
        return f"{metric}{{{inside}}}"


_FROM_CLUSTER = ("container_", "kube_", "DCGM_")
_FROM_NODES = "emberline_l2_"
ANY: Final = Appeared()


def render_for_chart(name: str, scope: Scope, times: Times, appeared: Appeared = ANY) -> str:
    return rewrite_for_chart(render_declared(name, scope, times), times, appeared)


def render_every(name: str, scope: Scope, times: Times, appeared: Appeared = ANY) -> str:
    """Render for a chart, of all groups instead of the busiest."""
    every, _, _ = split_ranking(render_declared(name, scope, times))
    return rewrite_for_chart(every, times, appeared)


def render_total(
    name: str,
    scope: Scope,
    range_s: int,
    kept_by: tuple[int, ...] = (),
    fleet: tuple[int, ...] = (),
    exported: Collection[str] | None = None,
) -> str:
    """Render for one value over a range whose end is a multiple of the growth window: ratios of
    sums, quantiles of all observations, gauges at the end of the range. `exported`: counters that
    have a series in the range, if known.
    """
    text = render_declared(name, scope, Times(range_s, range_s, kept=kept_by, fleet=fleet))
    return rewrite_for_total(text, get_part_s(range_s), exported)


def render_plain(name: str, scope: Scope, times: Times) -> str:
    return QUERIES[name](scope, times)


def render_declared(name: str, scope: Scope, times: Times) -> str:
    text = render_plain(name, scope, times)
    if has_copies(times):
        text = _read_copies(text)
    return rewrite_recorded(text, times) if times.kept else text


def window_s(found: re.Match[str]) -> int:
    return int(found[4]) * _SECONDS[found[5]]


def find_counters(expressions: Iterable[str]) -> set[tuple[str, str]]:
    """Return the selectors whose growth is queried, each with its braces."""
    return {(call[2], call[3] or "") for text in expressions for call in GROWTH_CALL.finditer(text)}


def rewrite_for_chart(expression: str, times: Times, appeared: Appeared = ANY) -> str:
    def put(found: re.Match[str]) -> str:
        how, metric, braces, _, _, length = found.groups(default="")
        counter, length_s = f"{metric}{braces}", window_s(found)
        if length:
            return _ranking(counter, length_s)
        overlap = times.scrape_s if length_s < times.step_s + times.scrape_s else 0
        grown = f"rate({counter}[{length_s + overlap}s])"
        if new := appeared.select(metric, braces):
            whole = f"({_appeared(new, length_s)})"
            if length_s > times.rate_s:  # a day: its last value is of the newest process only
                whole = f"({whole} unless resets({new}[{length_s}s]) > 0)"
            grown = f"({whole} / {length_s} or {grown})"
        return grown if how == "rate" else f"({grown} * {length_s})"

    return GROWTH_CALL.sub(put, expression)


def render_ranking(name: str, scope: Scope, times: Times) -> tuple[str, str]:
    """Return the label of the groups of which the busiest are shown, and the query of the values
    that rank them; "" for a query that shows all.
    """
    _, label, values = split_ranking(render_declared(name, scope, times))
    return label, rewrite_ranking(values, times) if label else ""


def rewrite_ranking(expression: str, times: Times) -> str:
    """Rank gauges by their mean at the points of the chart: all samples of a week are too many."""
    sampled = _HELD.sub(rf"\1:{times.step_s}s] @ end()", expression)
    return rewrite_for_chart(_read_copies(sampled) if has_copies(times) else sampled, times)


def _read_copies(expression: str) -> str:
    return _GAUGE.sub(rf"last_over_time({COPIES.now}\1\2[{2 * COPIES.every_s}s])", expression)


_HELD: Final = re.compile(r"(avg_over_time\([^\[]*\[\d+s)\] @ end\(\)")


def rewrite_for_total(
    expression: str, every_s: int, exported: Collection[str] | None = None
) -> str:
    def put(found: re.Match[str]) -> str:
        how, metric, braces, _, _, length = found.groups(default="")
        if exported is not None and metric not in exported:
            return found[0]  # no series, at less cost
        counter, length_s = f"{metric}{braces}", window_s(found)
        if length:
            return _ranking(counter, length_s)
        grown = _between(counter, min(length_s, every_s))
        if length_s > every_s:
            # Before Prometheus 3 a range includes both ends.
            grown = f"sum_over_time({grown}[{length_s - 1}s:{every_s}s])"
        return f"({grown} / {length_s})" if how == "rate" else f"({grown})"

    return GROWTH_CALL.sub(put, expression)


def select_exporters(found: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Select the counters of the cluster's exporters."""
    return {counter for counter in found if counter[0].startswith(_FROM_CLUSTER)}


def _appeared(counter: str, length_s: int) -> str:
    last = f"last_over_time({counter}[{length_s}s])"
    targets = _known_targets(length_s, _match_targets(counter))
    return f"({last} unless {_before(counter, length_s)}) and {_TARGET} {targets}"


def _between(counter: str, length_s: int) -> str:
    """Drop the metric name in every branch, else a sum over time would see duplicate series."""
    last = f"last_over_time({counter}[{length_s}s])"
    grown = f"{last} - {_before(counter, length_s)} >= 0"
    targets = _known_targets(length_s, _match_targets(counter))
    return f"(({grown} or ({last} and {_TARGET} {targets})) + 0)"


def _before(counter: str, length_s: int) -> str:
    """Return the value before the window, also across failed scrapes, unless the target was scraped
    again since and had restarted.
    """
    before = f"offset {length_s}s"
    lapsed = f"last_over_time({counter}[{_LAPSE_S}s] {before}) unless {_TARGET} up {before} == 1"
    return f"({counter} {before} or ({lapsed}))"


_MATCHER = re.compile(r'(\w+)(=~?"(?:[^"\\]|\\.)*")')
# Labels of a counter that all series of its target have, by their name there.
_OF_TARGET: Final = {
    **{name: name for name in ("namespace", "endpoint_name", "pod", "job")},
    "endpoint": "endpoint_name",
}


def _match_targets(counter: str) -> str:
    """Return the selector of the targets that may export the counter: reading half an hour of
    every target of a large fleet, window by window, costs more than the counter itself.
    """
    if counter.startswith(_FROM_CLUSTER):
        return f'{{job!~"{"|".join(JOBS)}"}}'
    if counter.startswith(_FROM_NODES):
        return '{job="l2"}'
    matchers = _MATCHER.findall(counter)
    parts = [f"{_OF_TARGET[name]}{match}" for name, match in matchers if name in _OF_TARGET]
    return f"{{{','.join(parts)}}}" if parts else ""


def _known_targets(length_s: int, of: str) -> str:
    """Select targets whose previously unseen series were counted entirely within the window. `of`:
    selector of the targets.
    """
    before = f"offset {length_s}s"
    scraped = f"max_over_time(up{of}[{_LAPSE_S}s] {before}) == 1"
    ever = f"max_over_time(up{of}[{_YOUNG_S}s] {before}) == 1"
    started = f"last_over_time(process_start_time_seconds{of}[{length_s}s])"
    young = f"{started} > time() - {length_s} - {_YOUNG_S}"
    return f"({scraped} or ({young} unless {_TARGET} {ever}))"


def _ranking(counter: str, length_s: int) -> str:
    last = f"last_over_time({counter}[{length_s}s] @ end())"
    return f"({last} - {counter} @ end() offset {length_s}s >= 0 or {last})"


WORKER_LABELS: Final = ("engine", "instance", "pod", "worker")  # labels removed from sums


@dataclass(frozen=True, slots=True)
class Family:
    """Family of recording rules. `sums_only`: without series of single workers."""

    every_s: int
    prefix: str
    sums_only: bool = False

    @property
    def all(self) -> str:
        """Prefix of metric names summed over an endpoint's workers."""
        return f"{self.prefix}:"

    @property
    def fleet(self) -> str:
        """Prefix of metric names summed over all endpoints."""
        return f"{self.prefix}_fleet:"

    @property
    def each(self) -> str:
        """Prefix of metric names with all labels."""
        return f"{self.prefix}_each:"

    @property
    def now(self) -> str:
        """Prefix of the copies of gauges."""
        return f"{self.prefix}_now:"

    @property
    def scraped(self) -> str:
        """Recorded since all of the family's series are: renamed when series are added."""
        return f"{self.prefix}:scraped"

    @property
    def fleet_scraped(self) -> str:
        """Like `scraped`, of the sums over all endpoints."""
        return f"{self.prefix}_fleet:scraped"

    def serves(self, window_s: int, step_s: int) -> bool:
        """Whether windows and steps are multiples of the interval. Partial steps would count twice,
        unless the window is so long that its exact start does not matter.
        """
        long = window_s >= max(_MIN_WINDOW_S, _MANY * self.every_s) and not self.sums_only
        return window_s % self.every_s == 0 and (step_s % self.every_s == 0 or long)


FAMILIES: Final = (  # coarsest first
    Family(3600, "emberline1h", sums_only=True),
    Family(300, "emberline5m"),
    Family(60, "emberline1m"),
)

COPIES: Final = FAMILIES[1]
_COPIED_STEP_S = 1800
_GAUGE: Final = re.compile(
    rf"(?<![\w:\"])({'|'.join(sorted(n.COPIED, reverse=True))})(?![\w:\"])"
    r"(\{[^{}]*\})?(?!\{|\[\d+\w\])"  # not a range of samples
)


def has_copies(times: Times) -> bool:
    """Whether gauges are read from their copies, at the points of long ranges."""
    return COPIES.every_s in times.kept and wants_copies(times)


def wants_copies(times: Times) -> bool:
    """Whether copies cost less than samples: of all endpoints, whose series are many, sooner."""
    return times.step_s >= (COPIES.every_s if times.fleet else _COPIED_STEP_S)


def render_peaks(name: str, scope: Scope, times: Times) -> str:
    """Render a gauge for the peak between the points, from samples where they are few enough."""
    exact = times if times.step_s >= _COPIED_STEP_S else replace(times, kept=())
    return _HELD.sub(rf"\1:{times.step_s}s] @ end()", render_for_chart(name, scope, exact))


def serves_steps(times: Times) -> bool:
    """Whether recording rules have the growth within each step."""
    families = [family for family in FAMILIES if family.every_s in times.kept]
    return _serving(families, times.rate_s, times.step_s, False) is not None


_MIN_WINDOW_S = 3600  # shorter windows have too few samples to gain from rules
_MANY = 12
_NAMES_ONE = re.compile(rf"\b({'|'.join(WORKER_LABELS)})\b")


def names_one(expression: str) -> bool:
    """Whether the expression names a label of single workers."""
    return _NAMES_ONE.search(expression) is not None


def select_families(
    expressions: Iterable[str], times: Times, among: Collection[int] | None = None
) -> dict[Family, int]:
    """Return the families to query, with the seconds each reads before a step. `among`: intervals
    of the available families; None means all.
    """
    usable = _usable_families(times.scrape_s)
    families = [family for family in usable if among is None or family.every_s in among]
    largest: dict[Family, int] = {}
    for expression in expressions:
        is_of_one = names_one(expression)
        for call in GROWTH_CALL.finditer(expression):
            length_s = window_s(call)
            family = _serving(families, length_s, times.step_s, is_of_one)
            if family is not None:
                back_s = 0 if call[6] else length_s
                largest[family] = max(largest.get(family, 0), back_s)
    return largest


def rewrite_recorded(expression: str, times: Times) -> str:
    """Rewrite the expression to the families in `times.kept`; other counters stay."""
    families = [family for family in FAMILIES if family.every_s in times.kept]
    is_of_one = names_one(expression)
    of_fleet = () if is_of_one or fleet_sums.names_endpoint(expression) else times.fleet

    def put(found: re.Match[str]) -> str:
        how, metric, braces, _, _, length = found.groups(default="")
        length_s = window_s(found)
        family = _serving(families, length_s, times.step_s, is_of_one)
        if family is None:
            return found[0]
        prefix = family.each if is_of_one else family.all
        if family.every_s in of_fleet and fleet_sums.is_summed(expression, found):
            prefix = family.fleet
        factor = family.every_s if how == "increase" else family.every_s / length_s
        # One millisecond less: before Prometheus 3 a range includes both ends.
        span = f"[{1000 * length_s - 1}ms]{length}"
        return f"(sum_over_time({prefix}{metric}{braces}{span}) * {factor!r})"

    return GROWTH_CALL.sub(put, expression)


def _usable_families(scrape_s: int) -> tuple[Family, ...]:
    """Return the families whose interval has four samples, the minimum for a rate."""
    return tuple(family for family in FAMILIES if 4 * scrape_s <= family.every_s)


def _serving(
    families: Sequence[Family], window_s: int, step_s: int, is_of_one: bool
) -> Family | None:
    able = (family for family in families if not (is_of_one and family.sums_only))
    return next((family for family in able if family.serves(window_s, step_s)), None)


def find_missing(family: Family, back_s: int) -> str:
    """Return the time of the last moment within `back_s` without recorded values, with scrapes or
    not: cheap.
    """
    step_s, sampled = _sample(family.every_s, family.scraped, back_s)
    missing = f"max_over_time((vector(time()) unless on () {sampled})[{back_s}s:{step_s}s])"
    begun = _begun(family.every_s, family.scraped, back_s)
    return f"{missing} or (vector(time() - {back_s}) unless on () {begun})"


def count_without_fleet(family: Family, back_s: int) -> str:
    """Count the moments with values of the endpoints but without those of the fleet."""
    step_s, sampled = _sample(family.every_s, family.scraped, back_s)
    _, sums = _sample(family.every_s, family.fleet_scraped, back_s)
    lacking = f"sum(count_over_time(({sampled} unless on () {sums})[{back_s}s:{step_s}s]))"
    begun = _begun(family.every_s, family.scraped, back_s)
    begun_sums = _begun(family.every_s, family.fleet_scraped, back_s)
    return f"{lacking} or sum({begun} unless on () {begun_sums})"


def _begun(every_s: int, marker: str, back_s: int) -> str:
    """Return what has a value if rules were recorded when the range began: no gap is bridged."""
    return f"last_over_time({marker}[{2 * every_s}s] offset {back_s}s)"


def _sample(every_s: int, marker: str, back_s: int) -> tuple[int, str]:
    """Return the distance of the moments, and what has values where a family is recorded."""
    step_s = every_s * max(1, back_s // (_COVERAGE_SAMPLES * every_s))
    return step_s, f"last_over_time({marker}[{4 * every_s}s] offset -{2 * every_s}s)"


def count_uncovered(family: Family, back_s: int, before_s: int = 0) -> str:
    """Count the moments within `back_s` with scrapes but without recorded values; no series means
    none. Reads two evaluations ahead, because a rule is evaluated after the samples it sums. For
    targets younger than the first moment only the last moment counts. `before_s`: seconds of the
    range that are known to be recorded up to its end.
    """
    every_s = family.every_s
    step_s, sampled = _sample(every_s, family.scraped, back_s)
    up = f'up{{job=~"{"|".join(JOBS)}"}}'
    scraped = f"count({up})"
    lacking = f"({scraped} unless on () {sampled})"
    begun = _begun(every_s, family.scraped, back_s)
    at_first = f"(count({up} offset {back_s}s) unless on () {begun})"
    at_last = f"({scraped} unless on () last_over_time({family.scraped}[{4 * every_s}s]))"
    before_s = max(0, min(before_s, back_s - step_s))
    past = f"[{back_s - before_s}s:{step_s}s]{f' offset {before_s}s' if before_s else ''}"
    return f"sum(count_over_time({lacking}{past})) or {at_last} or {at_first}"
