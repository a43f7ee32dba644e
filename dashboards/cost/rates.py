"""The price of one worker: the catalogue's price of a machine, times its share of that machine.

Promises that an unknown price stays unknown and says what would make it known. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from console.catalogue.builtin import Instance
from dashboards.cost.formulas import Rate, Share
from endpoints.spec import GIB, EndpointSpec
from endpoints.worker_pod import gpu_resource

THIS_MACHINE = "this-machine"
"""The instance type which stands for the machine of workers outside any cluster."""


def rate(spec: EndpointSpec, catalogue: Mapping[str, Instance]) -> Rate:
    name = _machine_name(spec)
    if not name:
        return Rate(None, "Name the instance type under Placement: the price is looked up by it.")
    instance = catalogue.get(name)
    if instance is None:
        remedy = f"Add {name} under Instance types, with what you pay for it."
        return Rate(None, f"No instance type {name} is in the catalogue. {remedy}")
    if instance.price_usd_hour is None:
        return Rate(None, f"The price of {name} is not known. Give it under Instance types.")
    share = _share(spec, instance)
    words = f"{instance.price_usd_hour:g} USD an hour for {name} x {share.words}"
    return Rate(instance.price_usd_hour * share.part, words=words)


def _machine_name(spec: EndpointSpec) -> str:
    """Of several types the preferred one: which a pod went to is not looked up."""
    if not spec.placement.cluster:
        return THIS_MACHINE
    return spec.placement.instance_types[0] if spec.placement.instance_types else ""


def _share(spec: EndpointSpec, instance: Instance) -> Share:
    l1 = spec.cache.l1.size_bytes if spec.cache.l1.enabled else 0
    return Share(
        gpus=gpu_resource(spec)[1],
        of_gpus=instance.gpus,
        cpus=spec.resources.cpus,
        of_cpus=instance.vcpus,
        memory_bytes=int(spec.resources.memory_gib * GIB) + l1,
        of_memory_bytes=instance.memory_bytes,
    )
