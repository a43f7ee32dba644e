"""Model catalogue of this installation: local and published models, with what fits where.

Reads the model folder and the instance types (one query).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.catalogue.selectors import instances_by_name
from endpoints.fit.estimate import FitVerdict, Machine
from endpoints.fit.model_catalogue import BY_NAME, KNOWN_MODELS
from endpoints.fit.model_shape import ModelShape
from endpoints.fit.smallest_machine import Placement, on_cpu, order, smallest
from endpoints.placement import capacity_check, installation


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """Entry of the model list. `local`: the files are on this machine. `here`: this machine, or the
    cluster's node pools; None if unknown. `instance`: the cheapest instance type of the catalogue.
    """

    name: str
    local: bool
    licence: str
    gated: bool
    params: int
    weight_bytes: int
    max_context: int
    here: Placement | None
    instance: Placement | None

    @property
    def fits(self) -> bool:
        return self.here is not None and self.here.verdict is not FitVerdict.DOES_NOT_FIT

    @property
    def size(self) -> str:
        return capacity_check.format_params(self.params) if self.params else ""


def list_models(search: str = "", cluster: str = "") -> list[ModelEntry]:
    """Return local models, then published ones by name; all words of `search` must occur in the
    name, licence or size.
    """
    words = search.lower().split()
    places = _Places(cluster)
    entries = (
        [_local(name, places) for name in sorted(installation.models())] if not cluster else []
    )
    entries += [
        _entry(
            known_model.name,
            known_model.shape,
            places,
            licence=known_model.licence,
            gated=known_model.gated,
        )
        for known_model in sorted(KNOWN_MODELS, key=lambda one: one.name.lower())
    ]
    return [entry for entry in entries if _matches(entry, words)]


def find_model(name: str, cluster: str = "") -> ModelEntry:
    """Return the entry of a model by name or path; unknown values are 0, "" and None."""
    places = _Places(cluster)
    if not cluster and (name in installation.models() or name.startswith("/")):
        return _local(name, places)
    known_model = BY_NAME.get(name.lower())
    shape = None if name.startswith("/") else capacity_check.model_shape(name)
    licence, gated = (known_model.licence, known_model.gated) if known_model else ("", False)
    return _entry(name, shape, places, licence=licence, gated=gated)


class _Places:
    """Machines that a model is compared with."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        priced = [
            (instance_type.price_usd_hour, capacity_check.machine_of(instance_type))
            for instance_type in instances_by_name().values()
        ]
        self.instances = order(priced)
        self.machine = capacity_check.this_machine()
        pools: Iterable[Machine] = (
            capacity_check.node_pools(cluster, gpus=True).values() if cluster else ()
        )
        self.pools = order((None, pool) for pool in pools)

    def here(self, shape: ModelShape) -> Placement | None:
        if not self.cluster:
            return on_cpu(shape, self.machine)
        return smallest(shape, self.pools) if self.pools else None


def _local(name: str, places: _Places) -> ModelEntry:
    known_model = BY_NAME.get(f"huggingfacetb/{name}".lower())
    licence = known_model.licence if known_model else ""
    shape = capacity_check.model_shape(name)
    local = name.startswith("/") or bool(installation.models().get(name))
    return _entry(name, shape, places, licence=licence, local=local)


def _entry(
    name: str,
    shape: ModelShape | None,
    places: _Places,
    *,
    licence: str = "",
    gated: bool = False,
    local: bool = False,
) -> ModelEntry:
    if shape is None:
        return ModelEntry(name, local, licence, gated, 0, 0, 0, None, None)
    instance = smallest(shape, places.instances)
    return ModelEntry(
        name,
        local,
        licence,
        gated,
        shape.params,
        shape.weights(),
        shape.max_context,
        places.here(shape),
        instance if instance.verdict is not FitVerdict.DOES_NOT_FIT else None,
    )


def _matches(one: ModelEntry, words: list[str]) -> bool:
    text = f"{one.name} {one.licence} {one.size}".lower()
    return all(word in text for word in words)
