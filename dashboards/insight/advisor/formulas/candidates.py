"""Changes of an endpoint that a survey replays, as values of a what-if analysis. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from endpoints.spec.fields import STRATEGIES

Values = dict[str, Any]
WorkerPrice = Callable[[float], float | None]
"""Price of a worker (USD/h) by its L1 size (GiB)."""

_GIB = 1024**3
_STEPS = (-2, -1, 1, 2)  # replicas
_FACTORS = (0.0, 0.5, 1.0, 2.0, 4.0)  # of the present size of a tier
_L1_OF_DEVICE = (1.0, 4.0)  # of a worker's device cache, where there is no L1
_L2_OF_DEVICE = (2.0, 8.0)  # of all workers' device caches, where there is no L2
_ASSUMED_DEVICE_TOKENS = 100_000
MAX_REPLICAS = 256
LABELS = {
    "strategy": "Strategy",
    "replicas": "Replicas",
    "l1_gib": "L1 size (GiB)",
    "l2_gib": "L2 size (GiB)",
}


@dataclass(frozen=True, slots=True)
class CandidateOptions:
    """What the advisor may change. `replicas`, `l2`: may be changed; an autoscaler and an external
    Redis have their own.
    """

    worker_price: WorkerPrice
    replicas: bool = True
    l2: bool = True


def list_candidates(present: Values, options: CandidateOptions) -> list[Values]:
    return [{**present, **change} for change in _changes(present, options)]


def _changes(present: Values, options: CandidateOptions) -> Iterator[Values]:
    for strategy in STRATEGIES:
        if strategy != present["strategy"]:
            yield {"strategy": strategy}
    if options.replicas:
        for step in _STEPS:
            if 1 <= present["replicas"] + step <= MAX_REPLICAS:
                yield {"replicas": present["replicas"] + step}
    now = present["l1_gib"], present["l2_gib"]
    for l1 in l1_sizes(present):
        for l2 in l2_sizes(present) if options.l2 else (now[1],):
            if (l1, l2) == now or (l2 and not l1):  # L2 is filled through L1
                continue
            change: Values = {"l1_gib": l1, "l2_gib": l2}
            price = options.worker_price(l1)
            yield change if l1 == now[0] or price is None else {**change, "price_usd_hour": price}


def l1_sizes(present: Mapping[str, Any]) -> tuple[float, ...]:
    return _sizes(present, present["l1_gib"], _L1_OF_DEVICE, 1)


def l2_sizes(present: Mapping[str, Any]) -> tuple[float, ...]:
    return _sizes(present, present["l2_gib"], _L2_OF_DEVICE, present["replicas"])


def _sizes(
    present: Mapping[str, Any], size: float, shares: tuple[float, ...], workers: int
) -> tuple[float, ...]:
    """Return the sizes to replay, ascending; only the present one if tokens have no known size."""
    if not present["kv_kib"]:
        return (size,)
    if size:
        return tuple(size if factor == 1.0 else _round(size * factor) for factor in _FACTORS)
    tokens = present["device_tokens"] or _ASSUMED_DEVICE_TOKENS
    device = tokens * present["kv_kib"] * 1024 / _GIB * workers
    return (0.0, *(_round(device * share) for share in shares))


def _round(size: float) -> float:
    """Round to two digits, at least 0.1 GiB; 0 stays 0."""
    return max(float(f"{size:.2g}"), 0.1) if size else 0.0


def changed_fields(present: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a candidate changes, without the price that follows from it."""
    return {name: values[name] for name in LABELS if values[name] != present[name]}
