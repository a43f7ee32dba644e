"""Parse quantities: `500m`, `4Gi`, `2`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

_SUFFIXES = {
    "m": Decimal("0.001"),
    "k": 1000,
    **{letter: Decimal(1000) ** power for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


def number(text: Any) -> Decimal:
    text = str(text)
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return Decimal(text[: -len(suffix)]) * _SUFFIXES[suffix]
    return Decimal(text)


def requests(pod_spec: dict[str, Any]) -> dict[str, Decimal]:
    """Return the resources a pod requests: the containers' sum; init containers fit into it or
    raise it.
    """
    total: dict[str, Decimal] = {"pods": Decimal(1)}
    for container in pod_spec["containers"]:
        for name, value in requested(container).items():
            total[name] = total.get(name, Decimal(0)) + value
    for container in pod_spec.get("initContainers", ()):
        for name, value in requested(container).items():
            total[name] = max(total.get(name, Decimal(0)), value)
    return total


def requested(container: dict[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources", {})
    both = {**resources.get("limits", {}), **resources.get("requests", {})}
    return {name: number(value) for name, value in both.items()}
