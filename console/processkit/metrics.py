"""Counters, gauges and histograms in Prometheus' text format (version 0.0.4).

An increment costs an addition without a lock: a process counts on one thread. Series exist, with
value zero, once requested; create them at start.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$", re.ASCII)
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPE = re.compile(r'\\([\\n"])')
_MEANS = {"n": "\n", "\\": "\\", '"': '"'}


class Number:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1) -> None:
        self.value += amount

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    """One series of a histogram; `bounds` are upper bounds, +Inf is added."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Registry:
    """All families of a process, in order of creation."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, text: str, **labels: str) -> Number:
        return self._number(name, "counter", text, labels)

    def gauge(self, name: str, text: str, **labels: str) -> Number:
        return self._number(name, "gauge", text, labels)

    def histogram(self, name: str, text: str, bounds: Sequence[float], **labels: str) -> Histogram:
        family = self._family(name, "histogram", text)
        child = family.children.get(key := tuple(labels.items()))
        if child is None:
            child = family.children[key] = Histogram(bounds)
        assert isinstance(child, Histogram)
        return child

    def render(self) -> str:
        return "".join(line for family in self._families.values() for line in family.lines())

    def _number(self, name: str, kind: str, text: str, labels: dict[str, str]) -> Number:
        family = self._family(name, kind, text)
        child = family.children.get(key := tuple(labels.items()))
        if child is None:
            child = family.children[key] = Number()
        assert isinstance(child, Number)
        return child

    def _family(self, name: str, kind: str, text: str) -> _Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(name, kind, text)
        if family.kind != kind:
            raise ValueError(f"{name} is a {family.kind}, not a {kind}")
        return family


class _Family:
    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name = name
        self.kind = kind
        self.text = text
        self.children: dict[tuple[tuple[str, str], ...], Number | Histogram] = {}

    def lines(self) -> Iterable[str]:
        text = self.text.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {self.name} {text}\n# TYPE {self.name} {self.kind}\n"
        for labels, child in self.children.items():
            if isinstance(child, Number):
                yield f"{self.name}{_labels(labels)} {_number(child.value)}\n"
            else:
                yield from self._histogram(labels, child)

    def _histogram(self, labels: tuple[tuple[str, str], ...], child: Histogram) -> Iterable[str]:
        total = 0
        for bound, count in zip((*child.bounds, float("inf")), child.counts, strict=True):
            total += count
            bucket_labels = _labels((*labels, ("le", _number(float(bound)))))
            yield f"{self.name}_bucket{bucket_labels} {_number(total)}\n"
        yield f"{self.name}_count{_labels(labels)} {_number(total)}\n"
        yield f"{self.name}_sum{_labels(labels)} {_number(child.sum)}\n"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels) + "}"


def escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    """Format like Prometheus' own clients: 1.0, 0.25, +Inf, 1e+06."""
    if value == float("inf"):
        return "+Inf"
    text = repr(float(value))
    dot = text.find(".")
    if value > 0 and dot > 6:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text


@dataclass(frozen=True, slots=True)
class MetricSample:
    name: str
    labels: Mapping[str, str]
    value: float


def parse_samples(text: str, prefix: str = "") -> list[MetricSample]:
    """Return the samples whose name starts with `prefix`, in order."""
    samples = []
    for line in text.splitlines():
        if not line.startswith(prefix or "") or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = {
            name: _ESCAPE.sub(lambda escape: _MEANS[escape[1]], raw)
            for name, raw in _LABEL.findall(match[2] or "")
        }
        samples.append(MetricSample(match[1], labels, value))
    return samples


def total(samples: Iterable[MetricSample], name: str, **labels: str) -> float | None:
    """Return the sum over matching series; None if there are none: absent is not zero."""
    pairs = set(labels.items())
    values = [s.value for s in samples if s.name == name and pairs <= set(s.labels.items())]
    return sum(values) if values else None
