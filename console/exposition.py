"""Reads the text a Prometheus exporter shows at /metrics.

Promises never to raise on a line it does not understand: it is skipped. Pure; knows no metric.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$", re.ASCII)
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPE = re.compile(r'\\([\\n"])')
_MEANS = {"n": "\n", "\\": "\\", '"': '"'}


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str, prefix: str = "") -> list[Sample]:
    """The samples whose name begins with `prefix`, in their order."""
    found = []
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
        found.append(Sample(match[1], labels, value))
    return found


def total(samples: Iterable[Sample], name: str, **labels: str) -> float | None:
    """The sum over the children with these labels; None when there is none: absent is not zero."""
    wanted = set(labels.items())
    values = [s.value for s in samples if s.name == name and wanted <= set(s.labels.items())]
    return sum(values) if values else None
