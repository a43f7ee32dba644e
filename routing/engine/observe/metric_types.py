"""Labelled counters, gauges and histograms in Prometheus text format.

Children exist from their declaration, so that zeros are exported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from console.processkit.metrics import Histogram, Number, escape

Labels = tuple[str, ...]
Child = TypeVar("Child")


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


class _Family(ABC, Generic[Child]):
    def __init__(self, kind: str, name: str, help_text: str, labels: Labels = ()) -> None:
        self.kind = kind
        self.name = name
        self.help_text = help_text
        self.labels = labels
        self.children: dict[Labels, Child] = {}
        if not labels:
            self.child()

    @abstractmethod
    def _make_child(self) -> Child: ...

    def child(self, *values: str) -> Child:
        child = self.children.get(values)
        if child is None:
            child = self.children[values] = self._make_child()
        return child

    def drop(self, position: int, value: str) -> None:
        """Remove all children whose label at `position` is `value`."""
        for key in [key for key in self.children if key[position] == value]:
            del self.children[key]

    def _names(self, base: str, values: Labels, extra: str = "") -> str:
        labels = zip(self.labels, values, strict=True)
        pairs = [f'{key}="{escape(value)}"' for key, value in labels if value]  # "": no label
        inside = ",".join(part for part in (base, *pairs, extra) if part)
        return f"{{{inside}}}" if inside else ""

    @abstractmethod
    def render(self, base: str) -> list[str]:
        """Return the family's lines; `base`: labels of every sample."""


class MetricFamily(_Family[Number]):
    def _make_child(self) -> Number:
        return Number()

    def render(self, base: str) -> list[str]:
        return [
            f"{self.name}{self._names(base, key)} {_format_number(number.value)}"
            for key, number in self.children.items()
        ]


class Histograms(_Family[Histogram]):
    def __init__(
        self, name: str, help_text: str, bounds: Sequence[float], labels: Labels = ()
    ) -> None:
        self._bounds = tuple(bounds)
        super().__init__("histogram", name, help_text, labels)

    def _make_child(self) -> Histogram:
        return Histogram(self._bounds)

    def render(self, base: str) -> list[str]:
        lines: list[str] = []
        for key, histogram in self.children.items():
            rendered = 0
            for bound, count in zip((*self._bounds, "+Inf"), histogram.counts, strict=True):
                rendered += count
                names = self._names(base, key, f'le="{bound}"')
                lines.append(f"{self.name}_bucket{names} {rendered}")
            names = self._names(base, key)
            lines.append(f"{self.name}_sum{names} {histogram.sum!r}")
            lines.append(f"{self.name}_count{names} {rendered}")
        return lines


Family = TypeVar("Family", MetricFamily, Histograms)


class Registry:
    """All families of a process, in order of declaration."""

    def __init__(self, base_labels: dict[str, str]) -> None:
        self._base = ",".join(f'{key}="{escape(value)}"' for key, value in base_labels.items())
        self._families: list[_Family[Any]] = []
        self.before_render: list[Callable[[], None]] = []

    def counter(self, name: str, help_text: str, labels: Labels = ()) -> MetricFamily:
        return self._add(MetricFamily("counter", name, help_text, labels))

    def gauge(self, name: str, help_text: str, labels: Labels = ()) -> MetricFamily:
        return self._add(MetricFamily("gauge", name, help_text, labels))

    def histogram(
        self, name: str, help_text: str, bounds: Sequence[float], labels: Labels = ()
    ) -> Histograms:
        return self._add(Histograms(name, help_text, bounds, labels))

    def _add(self, family: Family) -> Family:
        self._families.append(family)
        return family

    def render(self) -> bytes:
        for refresh in self.before_render:
            refresh()
        lines: list[str] = []
        for family in self._families:
            lines.append(f"# HELP {family.name} {family.help_text}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines += family.render(self._base)
        return ("\n".join(lines) + "\n").encode()
