"""Kubernetes' quantities as numbers: "500m", "30Gi", 2. Must not know Django."""

from __future__ import annotations

import re
from typing import Any

GIB = 1024**3
_FORM = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([eE][+-]?[0-9]+|[numkMGTPE]i?|)")
_SCALES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    **{letter: 1000.0 ** (power + 1) for power, letter in enumerate("kMGTPE")},
    **{f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")},
}


def number(value: Any) -> float | None:
    """None for what is no quantity."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    text = str(value).replace("Ki", "ki")
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    digits, suffix = found.groups()
    if suffix[:1] in "eE" and len(suffix) > 1 and suffix[1] != "i":
        return float(digits + suffix)
    scale = _SCALES.get(suffix.replace("ki", "Ki"))
    return None if scale is None else float(digits) * scale


def gib(value: Any) -> float | None:
    found = number(value)
    return None if found is None else round(found / GIB, 3)


def cpu_text(cpus: float) -> str:
    return f"{cpus:g}" if cpus == int(cpus) else f"{round(cpus * 1000)}m"


def memory_text(size_gib: float) -> str:
    return f"{size_gib:g}Gi" if size_gib == int(size_gib) else f"{round(size_gib * 1024)}Mi"
