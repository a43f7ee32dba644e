"""How a question in PromQL is made: whose numbers, over which times, with what in its braces.

Promises that nothing a person typed reaches Prometheus but as an escaped label value. Pure; knows
neither HTTP nor charts nor the names of metrics.

The rate window is four scrapes at least, so that one missed scrape leaves no hole, and never less
than a step, so that no request falls between two points. `rate` and `increase` as they are written
here lose nothing once a query is rendered (queries.growth).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SCRAPE_S = 5
JOBS = ("vllm", "router", "l2")  # as targets.py names them
TOP = 12  # lines a chart can carry; more are the business of a table

LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class Scope:
    """What is looked at: one endpoint, or when `endpoint` is "" those `among`; None: all.
    `worker`: one of the endpoint's, "" for all of them."""

    endpoint: str = ""
    namespace: str = "default"
    among: tuple[str, ...] | None = None
    worker: str = ""

    def engines(self, **more: str) -> str:
        """The selector of a worker's metrics."""
        return self._braces("endpoint_name", self._of_worker("pod") | more)

    def router(self, **more: str) -> str:
        """The selector of a router's metrics, which name their endpoint themselves."""
        return self._braces("endpoint", more)

    def decisions(self, **more: str) -> str:
        """The selector of those of a router's metrics which name a worker."""
        return self._braces("endpoint", self._of_worker("worker") | more)

    def _of_worker(self, label: str) -> dict[str, str]:
        return {label: self.worker} if self.worker else {}

    def _braces(self, label: str, more: dict[str, str]) -> str:
        pairs = dict(more)
        if self.endpoint:
            pairs |= {"namespace": self.namespace, label: self.endpoint}
        elif self.among is not None:
            # No endpoint is called "-": an empty pattern would match what has no endpoint.
            pairs[f"{label}_re"] = "|".join(self.among) or "-"
        return selector(pairs)


@dataclass(frozen=True, slots=True)
class Times:
    """`scrape_s`: how far apart the samples are. `kept`: in every so many seconds rules have kept,
    all the while, how much counters grew, and are asked instead of these (queries.kept)."""

    step_s: int
    range_s: int
    scrape_s: int = SCRAPE_S
    kept: tuple[int, ...] = ()

    @property
    def rate_s(self) -> int:
        return max(4 * self.scrape_s, self.step_s)


Query = Callable[[Scope, Times], str]
QUERIES: dict[str, Query] = {}


def escaped(value: str) -> str:
    """A label value between PromQL's quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def selector(pairs: dict[str, str]) -> str:
    """`{a="x",b="y"}`; a key ending in `_re` is matched as a pattern written in this file."""
    shown = []
    for key, value in sorted(pairs.items()):
        label, match = (key[:-3], "=~") if key.endswith("_re") else (key, "=")
        if not LABEL.fullmatch(label):
            raise ValueError(f"{label!r} is not the name of a label")
        shown.append(f'{label}{match}"{escaped(value)}"')
    return "{" + ",".join(shown) + "}"


def named(name: str) -> Callable[[Query], Query]:
    def register(query: Query) -> Query:
        QUERIES[name] = query
        return query

    return register


def rate(metric: str, braces: str, times: Times) -> str:
    return f"rate({metric}{braces}[{times.rate_s}s])"


def either(*vectors: str) -> str:
    """The first that is there, series by series: a metric, or what it was called before."""
    return vectors[0] if len(vectors) == 1 else f"({' or '.join(vectors)})"


def rates(metrics: Sequence[str], braces: str, times: Times) -> str:
    """Of a counter by any of its names. The rate drops the name, so that `or` finds the same."""
    return either(*(rate(metric, braces, times) for metric in metrics))


def sum_by(by: str, vector: str) -> str:
    return f"sum by ({by}) ({vector})" if by else f"sum({vector})"


def rate_by(by: str, metric: str, braces: str, times: Times) -> str:
    return sum_by(by, rate(metric, braces, times))


def ratio(part: str, whole: str) -> str:
    """Nothing, rather than no number, while there is nothing to share."""
    return f"{part} / ({whole} > 0)"


def share(part: str, whole: str) -> str:
    """As `ratio`, of a part which has no series until it was counted once."""
    return ratio(f"({part} or {whole} * 0)", whole)


def quantile(share: float, by: str, metrics: Sequence[str], braces: str, times: Times) -> str:
    """Of a histogram by any of its names; `by` without `le`."""
    buckets = rates([f"{metric}_bucket" for metric in metrics], braces, times)
    return f"histogram_quantile({share}, {sum_by(f'le, {by}' if by else 'le', buckets)})"


def mean(metric: str, braces: str, times: Times, by: str = "") -> str:
    """Of what a histogram saw."""
    total, count = (rate_by(by, f"{metric}_{end}", braces, times) for end in ("sum", "count"))
    return ratio(total, count)


def joined(vector: str, name: str, *labels: str) -> str:
    """Names each series by several labels at once."""
    sources = ", ".join(f'"{label}"' for label in labels)
    return f'label_join({vector}, "{name}", " ", {sources})'


def busiest(by: str, metric: str, braces: str, times: Times) -> str:
    """Keeps the TOP groups of the whole range: the same ones at every point."""
    grown = f"increase({metric}{braces}[{times.range_s}s] @ end())"
    return f"and on ({by}) topk({TOP}, sum by ({by}) ({grown}))"


def highest(by: str, gauge: str, braces: str, times: Times) -> str:
    """As `busiest`, by the mean of a gauge."""
    held = f"avg_over_time({gauge}{braces}[{times.range_s}s] @ end())"
    return f"and on ({by}) topk({TOP}, sum by ({by}) ({held}))"
