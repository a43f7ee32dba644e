"""Smallest machine that serves a model, and the context that fits there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from endpoints.fit.estimate import Fit, FitVerdict, Machine, WorkerRequirements, estimate
from endpoints.fit.model_shape import ModelShape

LEAST_CONTEXT = 4096
"""Minimum context (tokens) that is useful for chat."""
_SHARDS = (1, 2, 4, 8, 16)
_CPU_KV_SHARE = 8  # as `workload.worker_spec.KV_SHARE`


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of one worker. `context`: the longest that fits (tokens), 0 if it does not fit."""

    verdict: FitVerdict
    machine: str = ""
    gpu: str = ""
    gpus: int = 0
    context: int = 0


@lru_cache(maxsize=512)
def smallest(shape: ModelShape, machines: tuple[Machine, ...]) -> Placement:
    """Return the first of `machines` that serves the model, smallest first. Where none holds the
    full context, the first that holds `LEAST_CONTEXT`.
    """
    limited = Placement(FitVerdict.DOES_NOT_FIT)
    for machine in machines:
        placement = on_gpus(shape, machine)
        if placement.verdict is FitVerdict.FITS:
            return placement
        if placement.context and not limited.context:
            limited = placement
    return limited


def on_gpus(shape: ModelShape, machine: Machine) -> Placement:
    """Return the placement with the fewest GPUs of the machine."""
    best = Placement(FitVerdict.DOES_NOT_FIT, machine.name)
    for gpus in _SHARDS:
        if gpus > machine.gpus or shape.heads % gpus:
            continue
        worker = WorkerRequirements(tensor=gpus, max_context=_least(shape))
        placement = _placement(shape, machine, gpus, estimate(shape, machine, worker))
        if placement.verdict is FitVerdict.FITS:
            return placement
        if placement.context > best.context:
            best = placement
    return best


def on_cpu(shape: ModelShape, machine: Machine) -> Placement:
    """Return the placement of a worker that may use all memory of the machine."""
    memory = machine.host_bytes
    worker = WorkerRequirements(
        on_cpu=True,
        dtype="float32",
        kv_each=4.0,
        max_context=_least(shape),
        memory_bytes=memory,
        kv_bytes=memory // _CPU_KV_SHARE,
    )
    return _placement(shape, replace(machine, gpu=""), 0, estimate(shape, machine, worker))


def order(machines: Iterable[tuple[float | None, Machine]]) -> tuple[Machine, ...]:
    """Return the machines with GPUs, cheapest first; without prices, smallest first."""
    priced = [(price, machine) for price, machine in machines if machine.gpus and machine.gpu_bytes]
    priced.sort(
        key=lambda pair: (
            pair[0] is None,
            pair[0] or 0.0,
            pair[1].gpus * pair[1].gpu_bytes,
            pair[1].name,
        )
    )
    return tuple(machine for _, machine in priced)


def _least(shape: ModelShape) -> int:
    return min(shape.max_context or LEAST_CONTEXT, LEAST_CONTEXT)


def _placement(shape: ModelShape, machine: Machine, gpus: int, fit: Fit) -> Placement:
    if fit.blocking:
        return Placement(FitVerdict.DOES_NOT_FIT, machine.name)
    context = min(shape.max_context or fit.capacity_tokens, fit.capacity_tokens)
    verdict = FitVerdict.FITS if context >= shape.max_context else FitVerdict.TIGHT
    return Placement(verdict, machine.name, machine.gpu, gpus, context)
