"""Query several Prometheus servers as one.

An unavailable source affects its own endpoints only. Series with equal labels are aggregated if the
question defines how, else labelled with `metrics_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from dashboards.prometheus.http.client import Fault, Join, QueryResult, Question, Series

SOURCE: Final = "metrics_source"  # vLLM has a label `source` already
_ENDPOINT = ("endpoint_name", "endpoint")
Labels = tuple[tuple[str, str], ...]
Told = list[tuple[str, QueryResult]]


class QueryStart(Protocol):
    def begin(self, questions: Mapping[str, Question]) -> Callable[[], dict[str, QueryResult]]: ...


@dataclass(frozen=True, slots=True)
class FederatedSource:
    name: str
    asker: QueryStart


class RefusingAsker:
    """Source that cannot be queried: every result is its fault."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        return dict.fromkeys(questions, QueryResult(fault=self._fault))

    def begin(self, questions: Mapping[str, Question]) -> Callable[[], dict[str, QueryResult]]:
        return lambda: self.ask(questions)


class Federated:
    """Several metrics sources queried as one. `owners` maps endpoints to the name of their source;
    other endpoints may come from any source.
    """

    def __init__(self, parts: Iterable[FederatedSource], owners: Mapping[str, str]) -> None:
        self.parts = tuple(parts)
        self._owners = owners

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        begun = [(part.name, part.asker.begin(questions)) for part in self.parts]
        results = [(name, answers()) for name, answers in begun]
        return {
            key: self._joined([(name, answers[key]) for name, answers in results], question.join)
            for key, question in questions.items()
        }

    def _joined(self, results: Told, join: Join) -> QueryResult:
        faults = tuple(answer.fault for _, answer in results if answer.fault is not None)
        if len(faults) == len(results):
            return QueryResult(fault=faults[0], missing=faults[1:])
        joined = [
            (name, series)
            for name, answer in results
            for series in answer.series
            if self._is_its_own(name, series)
        ]
        return QueryResult(_merge(joined, join), missing=faults)

    def _is_its_own(self, part: str, series: Series) -> bool:
        endpoint = next(filter(None, map(series.label, _ENDPOINT)), "")
        return self._owners.get(endpoint, part) == part


def _merge(found: list[tuple[str, Series]], join: Join) -> tuple[Series, ...]:
    by_labels: dict[Labels, list[tuple[str, Series]]] = {}
    for name, series in found:
        by_labels.setdefault(series.labels, []).append((name, series))
    merged: list[Series] = []
    for labels, same in by_labels.items():
        if len(same) == 1:
            merged.append(same[0][1])
        elif join == "apart":
            for name, series in same:
                marked = tuple(sorted((*series.labels, (SOURCE, name))))
                merged.append(replace(series, labels=marked))
        else:
            add = sum if join == "sum" else max
            merged.append(Series(labels, _aggregate([series for _, series in same], add)))
    return tuple(sorted(merged, key=lambda series: series.labels))


def _aggregate(
    found: list[Series], add: Callable[[Iterable[float]], float]
) -> tuple[float | None, ...]:
    width = max(len(series.values) for series in found)
    points: list[float | None] = []
    for place in range(width):
        numbers = [
            value
            for series in found
            if place < len(series.values) and (value := series.values[place]) is not None
        ]
        points.append(add(numbers) if numbers else None)
    return tuple(points)
