"""Frozen spec of an endpoint, read from and written to JSON without loss, and differences of specs.

All inputs (form, REST, command line, stored revisions) go through `read`, which returns all errors
at once. Rules across fields and on the installation are in `rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from console.core.errors import Problem, Refused
from console.provisioners.pods import Pod
from endpoints.spec.cluster_spec import StateStoreSpec
from endpoints.spec.field import Effect, SpecField
from endpoints.spec.fields import (
    DEFAULTS,
    FIELDS,
    SECTIONS,
    CacheSpec,
    EndpointFields,
    L1Spec,
    L2Spec,
    ResourcesSpec,
    RoutingSpec,
)
from endpoints.spec.validators import redact, split_arguments

GIB = 1024**3
DEFAULT_ROUTERS = 2
"""Routers of an endpoint on a cluster."""
_GPU_DOMAINS = ("nvidia.com/", "amd.com/")


class SpecErrors(Refused):
    def __init__(self, errors: list[Problem]) -> None:
        super().__init__(*errors)

    def __str__(self) -> str:
        return "; ".join(f"{e.field}: {e.message} {e.remedy}" for e in self.errors)


@dataclass(frozen=True, slots=True)
class EndpointSpec(EndpointFields):
    @property
    def on_cluster(self) -> bool:
        return bool(self.placement.cluster)

    @property
    def simulated(self) -> bool:
        return self.engine == "simulated"

    @property
    def weights(self) -> str:
        """Return the name or path of the model that workers load; `model` may be another name."""
        hub = self.source.location if self.source.type == "huggingface" else ""
        return hub or self.model

    @property
    def gpus(self) -> int:
        """Return the GPUs per worker; the pod's resources take precedence."""
        return gpu_resource(self)[1]

    @property
    def data_parallel(self) -> int:
        """Return the number of engines of a worker, each with caches and KV events of its own."""
        return 1 if self.simulated else self._parallel("--data-parallel-size")

    @property
    def pipeline_parallel(self) -> int:
        return self._parallel("--pipeline-parallel-size")

    def _parallel(self, flag: str) -> int:
        value = self.argument(flag)
        return max(1, int(value)) if value.isdecimal() else 1

    def argument(self, flag: str) -> str:
        """Return the first value of a worker argument, "" without one."""
        return next(iter(dict(split_arguments(self.worker_args)).get(flag, ())), "")

    @property
    def needs_cache_tier(self) -> bool:
        return self.cache.l2.enabled and self.cache.l2.backend == "tieredstorage"

    @property
    def routers(self) -> int:
        """Return the number of routers, the least one with autoscaling."""
        return self.router.replicas or (DEFAULT_ROUTERS if self.on_cluster else 1)

    @property
    def most_routers(self) -> int:
        return max(self.routers, self.router.max_replicas if self.on_cluster else 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, which `parse` reads back to an equal spec. Cluster sections are
        included only if non-default, so that older specs keep their form.
        """
        data: dict[str, Any] = _plain(self)
        for name in _OPTIONAL_SECTIONS:
            if getattr(self, name) == DEFAULTS.get(name, {}):
                del data[name]
        return data

    def flat(self) -> dict[str, Any]:
        return flatten(_plain(self))


_OPTIONAL_SECTIONS = (*DEFAULTS, "tags", "manifest")


def _plain(value: Any) -> Any:
    """Return dataclasses as dicts and tuples as lists, for JSON."""
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None:
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """{"cache": {"l1": {"enabled": true}}} as {"cache.l1.enabled": true}."""
    return dict(_leaves(data, ""))


def _leaves(data: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in data.items():
        path = f"{prefix}{key}"
        if path in SECTIONS and isinstance(value, Mapping):
            leaves.extend(_leaves(value, f"{path}."))
        else:
            leaves.append((path, value))
    return leaves


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Invert `flatten`. A path below a non-object stays flat, to be rejected by name."""
    data: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = path.split(".")
        place: Any = data
        for parent in parents:
            place = place.setdefault(parent, {}) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place[leaf] = value
        else:
            data[path] = value
    return data


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the leaves of `patch`, as for PATCH."""
    return nest({**flatten(base), **flatten(patch)})


def read(
    data: Any, defaults: Mapping[str, Any] | None = None
) -> tuple[EndpointSpec, list[Problem]]:
    """Return the spec in `data` and the errors of single fields. A rejected field has its default
    in the returned spec, so that further rules can be checked. `defaults` are the installation's
    (such as the engine), by path.
    """
    if not isinstance(data, Mapping):
        return EndpointSpec(name="", model=""), [not_an_object(data)]
    flat = flatten({str(key): value for key, value in data.items()})
    errors = _unknown(flat)
    values: dict[str, Any] = {}
    for spec_field in FIELDS:
        fallback = (defaults or {}).get(spec_field.path, spec_field.default)
        if spec_field.path not in flat:
            values[spec_field.path] = _copy_default(fallback)
            if fallback is None:
                errors.append(_missing(spec_field))
            continue
        value, problem = spec_field.accept(flat[spec_field.path])
        if problem is not None:
            redacted = redact(spec_field.path, flat[spec_field.path])
            errors.append(Problem(spec_field.path, redacted, *problem))
            value = _copy_default(fallback)
        values[spec_field.path] = value
    return build(values), errors


def _copy_default(fallback: Any) -> Any:
    """Return a default; immutable ones are shared, since copying is slow for hundreds of specs."""
    if fallback is None:
        return ""
    return deepcopy(fallback) if isinstance(fallback, dict | list) else fallback


def not_an_object(value: Any) -> Problem:
    return Problem("", value, "An endpoint must be a JSON object.", "Send a JSON object.", "type")


def build(flat: Mapping[str, Any]) -> EndpointSpec:
    data = nest(flat)
    cache, router = data["cache"], data["router"]
    router["state_store"] = StateStoreSpec(**router["state_store"])
    return EndpointSpec(
        name=data["name"],
        model=data["model"],
        engine=data["engine"],
        replicas=data["replicas"],
        cache=CacheSpec(l1=L1Spec(**cache["l1"]), l2=L2Spec(**cache["l2"])),
        routing=RoutingSpec(**data["routing"]),
        worker_args=tuple(data["worker_args"]),
        media_domains=tuple(data["media_domains"]),
        aliases=tuple(data["aliases"]),
        resources=ResourcesSpec(**data["resources"]),
        **{name: type(default)(**data[name]) for name, default in DEFAULTS.items()},
        tags=data["tags"],
        manifest=data["manifest"],
    )


def parse(data: Any, defaults: Mapping[str, Any] | None = None) -> EndpointSpec:
    """Return the spec in `data`. Raise SpecErrors. Checks single fields only: see `rules.check`."""
    spec, errors = read(data, defaults)
    if errors:
        raise SpecErrors(errors)
    return spec


def _missing(spec_field: SpecField) -> Problem:
    return Problem(
        spec_field.path, None, f"{spec_field.label} is required.", spec_field.remedy, "required"
    )


def _unknown(given: Mapping[str, Any]) -> list[Problem]:
    paths = {spec_field.path for spec_field in FIELDS}
    errors = []
    for path, value in given.items():
        if path in paths:
            continue
        if path in SECTIONS:
            inside = ", ".join(sorted(p for p in paths if p.startswith(f"{path}.")))
            errors.append(
                Problem(
                    path, value, "This field must be an object.", f"Its fields: {inside}.", "type"
                )
            )
            continue
        parent = path.rpartition(".")[0]
        siblings = sorted(p for p in paths | set(SECTIONS) if p.rpartition(".")[0] == parent)
        errors.append(
            Problem(
                path,
                value,
                "Unknown field.",
                f"Remove it, or use one of: {', '.join(siblings)}.",
                "unknown_field",
            )
        )
    return errors


@dataclass(frozen=True, slots=True)
class FieldChange:
    path: str
    label: str
    before: Any
    after: Any
    effect: Effect


def diff(before: EndpointSpec, after: EndpointSpec) -> tuple[FieldChange, ...]:
    old, new = before.flat(), after.flat()
    return tuple(
        FieldChange(f.path, f.label, old[f.path], new[f.path], f.effect)
        for f in FIELDS
        if old[f.path] != new[f.path]
    )


def as_audit(changes: tuple[FieldChange, ...]) -> dict[str, list[Any]]:
    return {change.path: [change.before, change.after] for change in changes}


def gpu_resource(spec: EndpointSpec) -> tuple[str, int]:
    named = _gpus_named(spec.pod.resources)
    return named or (Pod().gpu_resource, spec.resources.gpus)


def gpus_of(pod_resources: Mapping[str, Any], gpus: int) -> int:
    """Return the GPUs per worker; `pod_resources` takes precedence."""
    named = _gpus_named(pod_resources)
    return named[1] if named else gpus


def _gpus_named(resources: Mapping[str, Any]) -> tuple[str, int] | None:
    for part in ("limits", "requests"):
        amount = resources.get(part)
        for name, count in amount.items() if isinstance(amount, Mapping) else ():
            if str(name).startswith(_GPU_DOMAINS) and str(count).isdecimal():
                return str(name), int(count)
    return None
