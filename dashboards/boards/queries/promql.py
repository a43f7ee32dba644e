"""Building blocks of PromQL: scopes, times, selectors, aggregations and alerts.

The rate window is at least four scrape intervals, so that one missed scrape leaves no gap, and at
least one step, so that no request falls between two points.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

SCRAPE_S = 5
JOBS = ("vllm", "router", "l2")  # as in prometheus/targets.py
TOP = 12
_PARTS = ((1800, 15), (7200, 30), (86_400, 60))  # range up to (s), window (s)
_LONG_PART_S = 300

ANY_WORKER = "any-worker"  # stands for a variable of Grafana, which selects all workers or one

LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class Scope:
    """Endpoints to query: one, or with `endpoint` "" those in `among`; None means all. `worker`:
    one of the endpoint's workers, "" for all. `pods`: all its pods in the range, if known, so that
    series of the cluster's other pods are not read.
    """

    endpoint: str = ""
    namespace: str = "default"
    among: tuple[str, ...] | None = None
    worker: str = ""
    pods: tuple[str, ...] = ()

    @property
    def is_fleet(self) -> bool:
        return not self.endpoint and self.among is None

    @property
    def is_of_worker(self) -> bool:
        return self.worker not in ("", ANY_WORKER)

    def engines(self, **more: str) -> str:
        return self._braces("endpoint_name", self._of_worker("pod") | more)

    def router(self, **more: str) -> str:
        return self._braces("endpoint", more)

    def callers(self, **more: str) -> str:
        """Of a router's counters: without the console's own requests (benchmarks, cache proof)."""
        return self.router(traffic_not="console", **more)

    def decisions(self, **more: str) -> str:
        return self._braces("endpoint", self._of_worker("worker") | more)

    def _of_worker(self, label: str) -> dict[str, str]:
        return {label: self.worker} if self.worker else {}

    def _braces(self, label: str, more: dict[str, str]) -> str:
        pairs = dict(more)
        if self.endpoint:
            pairs |= {"namespace": self.namespace, label: self.endpoint}
        elif self.among is not None:
            # No endpoint is called "-"; an empty pattern would match series without an endpoint.
            pairs[f"{label}_re"] = "|".join(self.among) or "-"
        return selector(pairs)


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a query. `scrape_s`: scrape interval. `kept`: intervals (s) of the recording rules
    that cover the whole range and replace the raw counters (queries.growth). `fleet`: those of
    which the sums of all endpoints cover it, too.
    """

    step_s: int
    range_s: int
    scrape_s: int = SCRAPE_S
    kept: tuple[int, ...] = ()
    fleet: tuple[int, ...] = ()

    @property
    def rate_s(self) -> int:
        return max(4 * self.scrape_s, self.step_s)


Query = Callable[[Scope, Times], str]
Braces = Callable[[Scope], str]  # such as Scope.engines
QUERIES: dict[str, Query] = {}


def escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def selector(pairs: dict[str, str]) -> str:
    """Return `{a="x",b="y"}`; a key ending in `_re` is matched as a pattern, which must be a
    constant, one ending in `_not` excludes the value.
    """
    parts = []
    for key, value in sorted(pairs.items()):
        label, match = key, "="
        for suffix, other in (("_re", "=~"), ("_not", "!=")):
            if key.endswith(suffix):
                label, match = key.removesuffix(suffix), other
        if not LABEL.fullmatch(label):
            raise ValueError(f"{label!r} is not the name of a label")
        parts.append(f'{label}{match}"{escape_label(value)}"')
    return "{" + ",".join(parts) + "}"


def register_query(name: str) -> Callable[[Query], Query]:
    def register(query: Query) -> Query:
        QUERIES[name] = query
        return query

    return register


def rate(metric: str, braces: str, times: Times) -> str:
    return f"rate({metric}{braces}[{times.rate_s}s])"


def first_present(*vectors: str) -> str:
    """Return the first existing vector, series by series: a metric, or its former name."""
    return vectors[0] if len(vectors) == 1 else f"({' or '.join(vectors)})"


def rates(metrics: Sequence[str], braces: str, times: Times) -> str:
    """Rate of a counter by any of its names. `rate` drops the name, so `or` matches series."""
    return first_present(*(rate(metric, braces, times) for metric in metrics))


def sum_by(by: str, vector: str) -> str:
    return f"sum by ({by}) ({vector})" if by else f"sum({vector})"


def rate_by(by: str, metric: str, braces: str, times: Times) -> str:
    return sum_by(by, rate(metric, braces, times))


def ratio(part: str, whole: str) -> str:
    """Empty, rather than NaN, while the denominator is 0."""
    return f"{part} / ({whole} > 0)"


def share(part: str, whole: str) -> str:
    """Like `ratio`, for a numerator without a series before its first count."""
    return ratio(f"({part} or {whole} * 0)", whole)


def quantile(share: float, by: str, metrics: Sequence[str], braces: str, times: Times) -> str:
    """Quantile of a histogram by any of its names; `by` without `le`."""
    buckets = rates([f"{metric}_bucket" for metric in metrics], braces, times)
    return f"histogram_quantile({share}, {sum_by(f'le, {by}' if by else 'le', buckets)})"


def mean(metric: str, braces: str, times: Times, by: str = "") -> str:
    total, count = (rate_by(by, f"{metric}_{end}", braces, times) for end in ("sum", "count"))
    return ratio(total, count)


def label_vector(vector: str, name: str, value: str) -> str:
    return f'label_replace({vector}, "{name}", "{value}", "", "")'


def join_labels(vector: str, name: str, *labels: str) -> str:
    sources = ", ".join(f'"{label}"' for label in labels)
    return f'label_join({vector}, "{name}", " ", {sources})'


def busiest(by: str, metric: str, braces: str, times: Times) -> str:
    """Keep the TOP groups of the whole range: the same ones at every point."""
    grown = f"increase({metric}{braces}[{times.range_s}s] @ end())"
    return f"and on ({by}) topk({TOP}, sum by ({by}) ({grown}))"


def highest(by: str, gauge: str, braces: str, times: Times) -> str:
    held = f"avg_over_time({gauge}{braces}[{times.range_s}s] @ end())"
    return f"and on ({by}) topk({TOP}, sum by ({by}) ({held}))"


_TEXT = r'"(?:[^"\\]|\\.)*"'
_RANKED = re.compile(rf"{_TEXT}|( and on \((\w+)\) topk\({TOP}, )")
_BRACKETS = re.compile(rf"{_TEXT}|[()]")


def split_ranking(expression: str) -> tuple[str, str, str]:
    """Return the expression for all groups, the label of `busiest` or `highest`, and what ranks its
    values. The last two are "" for an expression without them.
    """
    ranked = next((match for match in _RANKED.finditer(expression) if match[1]), None)
    if ranked is None:
        return expression, "", ""
    depth = 1
    for bracket in _BRACKETS.finditer(expression, ranked.end()):
        depth += {"(": 1, ")": -1}.get(bracket[0], 0)
        if not depth:
            ranking = expression[ranked.end() : bracket.start()]
            return expression[: ranked.start()] + expression[bracket.end() :], ranked[2], ranking
    raise ValueError(f"unbalanced brackets: {expression}")


def everywhere(_scope: Scope) -> str:
    """Selectors of metrics that belong to no endpoint."""
    return ""


def of_callers(query: Query, of_worker: Query) -> Query:
    """Query routers, or the worker of the scope: of a single one only its own counts are known."""
    return lambda scope, times: (of_worker if scope.is_of_worker else query)(scope, times)


def busiest_query(query: Query, by: str, metric: str, braces: Braces) -> Query:
    return lambda scope, times: f"{query(scope, times)} {busiest(by, metric, braces(scope), times)}"


def counter_query(metric: str, braces: Braces, by: str = "", *, top: bool = False) -> Query:
    """Growth of a counter per second; with `top` only of the busiest groups."""

    def query(scope: Scope, times: Times) -> str:
        grown = rate_by(by, metric, braces(scope), times)
        return f"{grown} {busiest(by, metric, braces(scope), times)}" if top else grown

    return query


def gauge_query(metric: str, braces: Braces, by: str = "", *, top: bool = False) -> Query:
    """Sum of a gauge; with `top` only of the highest groups."""

    def query(scope: Scope, times: Times) -> str:
        held = sum_by(by, f"{metric}{braces(scope)}")
        return f"{held} {highest(by, metric, braces(scope), times)}" if top else held

    return query


def worker_query(metric: str, by: str = "", *, top: bool = False) -> Query:
    """Sum of a gauge that every router reports of every worker, each worker counted once."""

    def query(scope: Scope, times: Times) -> str:
        braces = scope.decisions()
        held = sum_by(by, f"max by (namespace, endpoint, worker) ({metric}{braces})")
        return f"{held} {highest(by, metric, braces, times)}" if top else held

    return query


def quantile_query(percent: float, metrics: Sequence[str], braces: Braces, by: str = "") -> Query:
    return lambda scope, times: quantile(percent / 100, by, metrics, braces(scope), times)


def mean_query(metric: str, braces: Braces) -> Query:
    return lambda scope, times: mean(metric, braces(scope), times)


def share_query(part: str, whole: str, braces: Braces, by: str = "") -> Query:
    """Growth of one counter as a share of the growth of another."""

    def query(scope: Scope, times: Times) -> str:
        return share(*(rate_by(by, metric, braces(scope), times) for metric in (part, whole)))

    return query


def growth_query(braces: Braces, *metrics: str, by: str = "") -> Query:
    """Growth of a counter by any of its names."""

    def query(scope: Scope, times: Times) -> str:
        grown = (f"increase({metric}{braces(scope)}[{times.rate_s}s])" for metric in metrics)
        return first_present(*(sum_by(by, vector) for vector in grown))

    return query


def alerts(scope: Scope) -> str:
    """Firing alerts; rules set the label `endpoint` on every alert."""
    return f"ALERTS{scope.router(alertstate='firing')}"


def alerts_active(scope: Scope) -> str:
    return f"ALERTS{scope.router()}"


def alerts_since(scope: Scope) -> str:
    """Start of each alert's condition in epoch seconds."""
    return f"ALERTS_FOR_STATE{scope.router()}"


def stored() -> str:
    """Return the number of current targets; 0 if only older samples exist: nothing was stored for
    the lookback of queries (5 min by default), as with a full disk.
    """
    return "count(up) or 0 * max_over_time((count(up))[6h:5m])"


def names_exported(found: Iterable[tuple[str, str]], range_s: int) -> str:
    """Return the names of those counters that had a series within `range_s`."""
    parts = (
        f"count by (metric) ({_label_name(f'last_over_time({{{inside}}}[{range_s}s])')})"
        for inside in _select_together(found)
    )
    return " or ".join(parts)


def _label_name(vector: str) -> str:
    """Copy the metric's name into a label: set operations ignore names."""
    return f'label_replace({vector}, "metric", "$1", "__name__", "(.+)")'


def _select_together(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the matchers of all counters with equal braces."""
    by_braces: dict[str, set[str]] = {}
    for metric, braces in found:
        by_braces.setdefault(braces, set()).add(metric)
    for braces, metrics in sorted(by_braces.items()):
        names = f'__name__=~"{"|".join(sorted(metrics))}"'
        yield ",".join(filter(None, [names, braces[1:-1]]))


def names_appeared(found: Iterable[tuple[str, str]], range_s: int) -> str:
    """Return the names of those counters of which a series appeared within
    `range_s` before the evaluation time.
    """
    parts = []
    for inside in _select_together(found):
        last = _label_name(f"last_over_time({{{inside}}}[{range_s}s])")
        before = _label_name(f"{{{inside}}} offset {range_s}s")
        parts.append(f"count by (metric) ({last} unless {before})")
    return " or ".join(parts)


def get_part_s(length_s: int) -> int:
    """Return the window of a total in seconds. The range must end at a multiple."""
    return next((part for longest, part in _PARTS if length_s <= longest), _LONG_PART_S)


def align_end(moment: float, length_s: int) -> int:
    """Return the evaluation time of a total for a range that ends at `moment`: at most five
    minutes later, within Prometheus' lookback, so that growth before the moment is complete.
    """
    return -int(-moment // get_part_s(length_s)) * get_part_s(length_s)
