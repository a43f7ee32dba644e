"""Instance types as costs use them: this machine with what its workers request.

A cluster does not place more than a machine has. This machine may be promised several times over;
then its workers share what its cache tiers leave of its price, so that all costs together do not
exceed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cachetier import selectors as cachetier
from console.catalogue.core.builtin import Instance
from console.catalogue.selectors import instances_by_name
from dashboards.costs.formulas.price_terms import THIS_MACHINE, Needs, parse_stored_needs
from dashboards.costs.formulas.savings import Counts, worker_share
from endpoints import selectors

_LEAST_LEFT = 0.05
"""Part of this machine that workers share even if its cache tiers are larger than its memory."""
WorkersUse = Iterable[tuple[Needs, float]]
"""Requests of a worker of each endpoint, and the average number of its workers."""


def occupied_machines(
    counted: Mapping[str, Counts] | None = None, range_s: float = 0.0
) -> dict[str, Instance]:
    """Return the instance types, with the present occupancy of this machine; with `counted`, that
    of the range if it was higher. Endpoints of all teams count.
    """
    machines = instances_by_name()
    if THIS_MACHINE not in machines:
        return machines
    rows = selectors.endpoints().select_related(None).order_by()
    listed = rows.values_list("name", "spec", "status__ready_replicas")
    ready, measured = [], []
    for name, spec, replicas in listed:
        needs = parse_stored_needs(spec)
        worker_s = counted[name].worker_s if counted and name in counted else None
        ready.append((needs, float(replicas or 0)))
        measured.append((needs, (worker_s or 0.0) / range_s if range_s else 0.0))
    return occupy(machines, ready, measured)


def occupy(machines: Mapping[str, Instance], *uses: WorkersUse) -> dict[str, Instance]:
    """Return the instance types, this machine with the highest occupancy of these uses."""
    instance = machines.get(THIS_MACHINE)
    if instance is None:
        return dict(machines)
    tiers = (tier.spec for tier in cachetier.tiers())
    held = sum(spec.node_count * spec.memory_bytes for spec in tiers if not spec.cluster)
    left = max(_LEAST_LEFT, 1.0 - held / instance.memory_bytes)
    parts = [requested_parts(instance, use) for use in uses]
    occupancy = max(1.0, max(parts, default=0.0) / left)
    return {**machines, THIS_MACHINE: replace(instance, occupancy=occupancy)}


def requested_parts(instance: Instance, use: WorkersUse) -> float:
    """Return the parts of this machine that its workers request: 1 is all of it."""
    alone = replace(instance, occupancy=1.0)
    return sum(
        workers * worker_share(needs, alone).part
        for needs, workers in use
        if needs.machine == THIS_MACHINE
    )
