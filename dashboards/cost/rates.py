"""The price of one worker: the catalogue's price of a machine, times its share of that machine.

Promises that an unknown price stays unknown and says what would make it known. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from console.catalogue.core.builtin import Instance
from dashboards.costs.formulas.price_terms import Needs
from dashboards.costs.formulas.savings import Rate, Share


def rate(needs: Needs, catalogue: Mapping[str, Instance]) -> Rate:
    """Of several types the preferred one: which a pod went to is not looked up."""
    name = needs.machine
    if not name:
        return Rate(None, "Name the instance type under Placement: the price is looked up by it.")
    instance = catalogue.get(name)
    if instance is None:
        remedy = f"Add {name} under Instance types, with what you pay for it."
        return Rate(None, f"No instance type {name} is in the catalogue. {remedy}")
    if instance.price_usd_hour is None:
        return Rate(None, f"The price of {name} is not known. Give it under Instance types.")
    part = share(needs, instance)
    words = f"{instance.price_usd_hour:g} USD an hour for {name} x {part.words}"
    price = instance.price_usd_hour
    return Rate(
        price * part.part,
        words=words,
        l1_usd_hour=price * part.l1_part,
        routers_usd_hour=price * _routers(needs, instance),
    )


def _routers(needs: Needs, instance: Instance) -> float:
    """Their share of a machine by what they request, whichever is more."""
    cpus = needs.router_cpus / instance.vcpus
    return needs.routers * max(cpus, needs.router_memory_bytes / instance.memory_bytes)


def share(needs: Needs, instance: Instance) -> Share:
    return Share(
        gpus=needs.gpus,
        of_gpus=instance.gpus,
        cpus=needs.cpus,
        of_cpus=instance.vcpus,
        memory_bytes=needs.memory_bytes + needs.l1_bytes,
        of_memory_bytes=instance.memory_bytes,
        l1_bytes=needs.l1_bytes,
    )
