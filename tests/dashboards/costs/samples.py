"""Two days of scrapes as plain numbers, with the expected results.

`Samples.text` is OpenMetrics for promtool; `grown` and `seen_s` compute from the same numbers
without Prometheus. One scrape a minute, at second 15.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

STEP_S = 60
OFFSET_S = 15
HOUR_S = 3600
LOOKBACK_S = 300
BEGIN = datetime(2026, 11, 8, 18, tzinfo=UTC)
HOURS = 36
AWAY = range(30, 32)
"""Hours (of `HOURS`) in which nothing was scraped."""
Labels = tuple[tuple[str, str], ...]


@dataclass
class Samples:
    """(epoch seconds, value) by name and labels."""

    series: dict[tuple[str, Labels], list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, name: str, at: int, value: float, **labels: str) -> None:
        key = name, tuple(sorted({"job": "vllm", **labels}.items()))
        self.series.setdefault(key, []).append((at, value))

    @property
    def text(self) -> str:
        def lines() -> Iterator[str]:
            for name in sorted({name for name, _ in self.series}):
                kind = "counter" if name.endswith("_total") else "gauge"
                yield f"# TYPE {name.removesuffix('_total')} {kind}"
                for (own, labels), found in self.series.items():
                    if own == name:
                        shown = ",".join(f'{key}="{value}"' for key, value in labels)
                        yield from (f"{name}{{{shown}}} {value} {at}" for at, value in found)
            yield "# EOF\n"

        return "\n".join(lines())

    def grown(self, name: str, endpoint: str, begin: int, end: int, **more: str) -> float:
        """Return the increase of counters; a decrease is a reset.

        A label "" is one that the series must not have.
        Increases across a scrape gap longer than Prometheus' lookback (five minutes) are unknown.
        """
        wanted = {("endpoint_name", endpoint), *((k, v) for k, v in more.items() if v)}
        without = {name for name, value in more.items() if not value}
        total = 0.0
        for (own, labels), found in self.series.items():
            if own == name and wanted <= set(labels) and not without & {key for key, _ in labels}:
                before, last = 0.0, found[0][0]
                for at, value in found:
                    if begin < at <= end and at - last <= LOOKBACK_S:
                        total += value - before if value >= before else value
                    before, last = value, at
        return total

    def seen_s(
        self, name: str, endpoint: str, begin: int, end: int, counts: Callable[[float], bool]
    ) -> float:
        """Return the seconds in which a gauge counts; a scrape stands for the time to the next."""
        return sum(
            STEP_S
            for (own, labels), found in self.series.items()
            if own == name and ("endpoint_name", endpoint) in labels
            for at, value in found
            if begin < at <= end and counts(value)
        )


@dataclass
class Pod:
    """Worker with increases a second while busy. `restarts`: hours in whose middle it restarts;
    `until`: hours until it is removed.
    """

    endpoint: str
    name: str
    rates: Mapping[tuple[str, Labels], float]
    restarts: tuple[int, ...] = ()
    until: int = HOURS


def scraped(pods: list[Pod]) -> Samples:
    """Return samples of randomly alternating busy and idle periods; deterministic."""
    found, chance = Samples(), random.Random(7)
    start = int(BEGIN.timestamp())
    for pod in pods:
        known = {"endpoint_name": pod.endpoint, "endpoint": pod.endpoint, "pod": pod.name}
        counters = dict.fromkeys(pod.rates, 0.0)
        load = 0.0
        for at in range(start + OFFSET_S, start + pod.until * HOUR_S, STEP_S):
            hour, within = divmod(at - start, HOUR_S)
            if within // STEP_S % 10 == 0:
                load = chance.choice((0.0, 0.0, 0.5, 1.0, 2.0))
            if hour in pod.restarts and within // STEP_S == 30:
                counters = dict.fromkeys(pod.rates, 0.0)
            for key, each in pod.rates.items():
                counters[key] += load * each * STEP_S
            if hour in AWAY:
                continue
            found.add("up", at, 1, **known)
            found.add("vllm:num_requests_running", at, load * 4, **known)
            for (name, labels), value in counters.items():
                if value or not labels:  # a labelled counter appears with its first increment
                    found.add(name, at, value, **known, **dict(labels))
    return found


def hour(number: int) -> datetime:
    return BEGIN + timedelta(hours=number)
