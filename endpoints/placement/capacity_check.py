"""Capacity check of a spec: find the model's shape and the machines, and evaluate each.

Reads a local config file and the catalogue (one query). Never raises; unknown values are reported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.catalogue.core.builtin import Instance
from console.catalogue.selectors import instances_by_name
from console.clusters import selectors as clusters
from console.core.errors import Problem
from endpoints.fit import model_catalogue, requirements
from endpoints.fit.estimate import Fit, FitVerdict, Machine, estimate
from endpoints.fit.model_shape import ModelShape, from_config
from endpoints.placement import installation
from endpoints.spec.endpoint_spec import GIB, EndpointSpec

LARGEST_CONFIG = 1_000_000
_SIMULATED_TOKEN_BYTES = 46_080.0  # endpoints.simulated_worker
_RANK = {FitVerdict.FITS: 0, FitVerdict.TIGHT: 1, FitVerdict.UNKNOWN: 2, FitVerdict.DOES_NOT_FIT: 3}


@dataclass(frozen=True, slots=True)
class MachineFit:
    """Result of the capacity check for one machine. `machine`: name of the instance type, "this
    machine", or "" if unknown.
    """

    machine: str
    price_usd_hour: float | None
    fit: Fit


@dataclass(frozen=True, slots=True)
class RouterCapacity:
    """Total requests of an endpoint's routers. `usd_hour`: their share of the preferred machine's
    price, None if its price or size is unknown.
    """

    replicas: int
    cpus: float
    memory_bytes: int
    usd_hour: float | None = None


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """Result of the capacity check. `judged` in order of preference; `best` is the most favourable.
    `routers`: None on this machine.
    """

    model: str
    params: int
    judged: tuple[MachineFit, ...]
    routers: RouterCapacity | None = None

    @property
    def size(self) -> str:
        return f"{format_params(self.params)} parameters" if self.params else ""

    @property
    def best(self) -> MachineFit:
        return min(self.judged, key=lambda one: _RANK[one.fit.verdict])


def format_params(params: int) -> str:
    """Return the parameter count as in model names: 135M, 8.03B, 406B."""
    billions = params / 1e9
    if billions < 1:
        return f"{params / 1e6:.0f}M"
    return f"{billions:.{2 if billions < 100 else 0}f}B"


def check_capacity(spec: EndpointSpec) -> CapacityReport:
    # An absolute path is in the pods' image, not on this machine.
    in_image = spec.on_cluster and spec.weights.startswith("/")
    shape = None if in_image else model_shape(spec.weights)
    needs = requirements.worker_requirements(spec)
    where = _candidate_machines(spec)
    judged = tuple(
        MachineFit(name, price, estimate(shape, machine, needs)) for name, price, machine in where
    )
    return CapacityReport(
        spec.model, shape.params if shape else 0, judged, _routers(spec, *where[0][1:])
    )


def _routers(
    spec: EndpointSpec, price: float | None, found: Machine | None
) -> RouterCapacity | None:
    if not spec.on_cluster:
        return None
    router = spec.router
    cpus = spec.routers * router.cpus
    size = int(spec.routers * router.memory_gib * GIB)
    if price is None or found is None or not (found.cpus and found.host_bytes):
        return RouterCapacity(spec.routers, cpus, size)
    share = max(cpus / found.cpus, size / found.host_bytes)
    return RouterCapacity(spec.routers, cpus, size, price * share)


def refusals(spec: EndpointSpec) -> list[Problem]:
    """Return why the model fits on none of the cluster's allowed machines; empty if it may."""
    return _misfits(spec) if spec.on_cluster else []


def doubts(spec: EndpointSpec) -> list[Problem]:
    """Return why workers cannot start on this machine. An estimate: who creates the endpoint may
    know better.
    """
    return [] if spec.on_cluster else _misfits(spec)


def _misfits(spec: EndpointSpec) -> list[Problem]:
    if spec.simulated:
        return []
    report = check_capacity(spec)
    if any(not machine.fit.blocking for machine in report.judged):
        return []
    return [
        Problem(
            finding.field,
            None,
            f"On {report.best.machine}: {finding.message}",
            finding.remedy,
            finding.code,
        )
        for finding in report.best.fit.blocking
    ]


def model_shape(model: str) -> ModelShape | None:
    location = installation.model_location(model)
    if location.startswith("/"):
        shape = _read(Path(location))
        if shape is not None:
            return shape
    return model_catalogue.find_shape(model)


def stored_token_bytes(spec: EndpointSpec) -> float | None:
    """Return the bytes of a token's KV in a cache tier; None: the model's shape is unknown."""
    if spec.simulated:
        return _SIMULATED_TOKEN_BYTES
    shape = model_shape(spec.weights)
    if shape is None:
        return None
    return shape.whole_kv_token_bytes(requirements.worker_requirements(spec).kv_each)


def _read(folder: Path) -> ModelShape | None:
    path = folder / "config.json"
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            return None
        config: Any = json.loads(path.read_text(encoding="utf-8"))
        size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    except (OSError, ValueError):
        return None
    return from_config(config, folder.name, size) if isinstance(config, Mapping) else None


def _candidate_machines(spec: EndpointSpec) -> list[tuple[str, float | None, Machine | None]]:
    if not spec.placement.cluster:
        return [("this machine", None, this_machine())]
    instance_types = instances_by_name()
    pools = node_pools(spec.placement.cluster, gpus=spec.gpus > 0)
    candidates: list[tuple[str, float | None, Machine | None]] = []
    for name in spec.placement.instance_types or tuple(pools) or ("",):
        instance_type = instance_types.get(name)
        price = instance_type.price_usd_hour if instance_type else None
        candidates.append(
            (name, price, pools.get(name) or (machine_of(instance_type) if instance_type else None))
        )
    return candidates


def node_pools(cluster: str, *, gpus: bool) -> dict[str, Machine]:
    """Return the cluster's node pools, with or without GPUs. Pools without a known GPU memory size
    are left to the catalogue.
    """
    inventory = clusters.inventory(cluster)
    return {
        pool.instance_type: Machine(
            pool.instance_type,
            pool.gpu,
            pool.gpus_per_node,
            pool.gpu_memory_bytes,
            pool.memory_bytes,
            pool.cpus,
        )
        for pool in (inventory.pools if inventory is not None else ())
        if pool.instance_type and bool(pool.gpu_memory_bytes) >= gpus
    }


def machine_of(one: Instance) -> Machine:
    return Machine(one.name, one.gpu, one.gpus, one.gpu_bytes, one.memory_bytes, one.vcpus)


def this_machine() -> Machine:
    return Machine(
        name="this machine",
        gpu="",
        gpus=installation.worker_gpus(),
        gpu_bytes=0,
        host_bytes=installation.memory_bytes(),
        cpus=os.cpu_count() or 1,
    )
