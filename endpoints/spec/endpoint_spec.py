"""What a user wants of an endpoint, as frozen values: read from JSON, written back without loss.

Promises that every way in (form, REST, command line, a stored revision) goes through `read`,
so that all of them refuse the same things in the same words, and all at once rather than one
by one. Must not know Django, the machine, or what runs: rules that need more than one field or
a look at the machine are in `spec_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

from endpoints.spec.cluster_spec import (
    ExposureSpec,
    LimitsSpec,
    MonitoringSpec,
    PdSpec,
    PlacementSpec,
    Plain,
    PodSpec,
    RolloutSpec,
    RouterSpec,
    ScalingSpec,
    SourceSpec,
)
from endpoints.spec.fields import FIELDS, SECTIONS, Effect, SpecField
from endpoints.spec.section import DEFAULTS
from endpoints.spec.validators import showable

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class FieldError:
    """One refused value: where, what, why, and what to do instead."""

    field: str
    value: Any
    message: str
    remedy: str
    code: str


class SpecErrors(Exception):
    """A spec was refused; `errors` says everything that is wrong with it."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.message} {e.remedy}" for e in errors))
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class L1Spec:
    """Memory of each worker. `chunk_tokens` is the unit which L1 and L2 store."""

    enabled: bool = True
    size_gib: float = 0.5
    policy: str = "lru"
    chunk_tokens: int = 32

    @property
    def size_bytes(self) -> int:
        return int(self.size_gib * GIB)


@dataclass(frozen=True, slots=True)
class L2Spec:
    """The shared tier: our own pool ("tieredstorage"), or somebody's Redis or Valkey."""

    enabled: bool = False
    backend: str = "tieredstorage"
    tier: str = "default"
    url: str = ""
    password_file: str = ""
    ttl_s: int = 3600


@dataclass(frozen=True, slots=True)
class CacheSpec:
    l1: L1Spec = field(default_factory=L1Spec)
    l2: L2Spec = field(default_factory=L2Spec)


@dataclass(frozen=True, slots=True)
class RoutingSpec:
    enabled: bool = True
    strategy: str = "prefixaware"
    session_key: str = "header:x-session-id"
    cache_isolation: str = "key"

    @property
    def effective_strategy(self) -> str:
        """With routing off the router still carries requests: to each worker in turn."""
        return self.strategy if self.enabled else "roundrobin"


@dataclass(frozen=True, slots=True)
class ResourcesSpec:
    """Of one worker. Memory does not include L1."""

    cpus: float = 1.0
    memory_gib: float = 4.0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    name: str
    model: str
    engine: str = "vllm"
    replicas: int = 1
    cache: CacheSpec = field(default_factory=CacheSpec)
    routing: RoutingSpec = field(default_factory=RoutingSpec)
    worker_args: tuple[str, ...] = ()
    media_domains: tuple[str, ...] = ()
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    placement: PlacementSpec = field(default_factory=PlacementSpec)
    source: SourceSpec = field(default_factory=SourceSpec)
    pod: PodSpec = field(default_factory=PodSpec)
    rollout: RolloutSpec = field(default_factory=RolloutSpec)
    scaling: ScalingSpec = field(default_factory=ScalingSpec)
    exposure: ExposureSpec = field(default_factory=ExposureSpec)
    router: RouterSpec = field(default_factory=RouterSpec)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    monitoring: MonitoringSpec = field(default_factory=MonitoringSpec)
    pd: PdSpec = field(default_factory=PdSpec)
    tags: Plain = field(default_factory=dict)
    manifest: Plain = field(default_factory=dict)

    @property
    def on_cluster(self) -> bool:
        return bool(self.placement.cluster)

    @property
    def simulated(self) -> bool:
        return self.engine == "simulated"

    @property
    def needs_cache_tier(self) -> bool:
        return self.cache.l2.enabled and self.cache.l2.backend == "tieredstorage"

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape; `parse` reads it back to an equal spec. A section for clusters is in it
        only where something of it is wanted: other specs stay as they were before clusters."""
        data: dict[str, Any] = _listed(asdict(self))
        for name in _WHERE_WANTED:
            if getattr(self, name) == DEFAULTS.get(name, {}):
                del data[name]
        return data

    def flat(self) -> dict[str, Any]:
        """Every field by its path."""
        return flatten(_listed(asdict(self)))


_WHERE_WANTED = (*DEFAULTS, "tags", "manifest")


def _listed(data: Any) -> Any:
    """JSON knows no tuples."""
    if isinstance(data, dict):
        return {key: _listed(value) for key, value in data.items()}
    return [_listed(item) for item in data] if isinstance(data, list | tuple) else data


def flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """{"cache": {"l1": {"enabled": true}}} as {"cache.l1.enabled": true}."""
    return dict(_leaves(data, ""))


def _leaves(data: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in data.items():
        path = f"{prefix}{key}"
        if path in SECTIONS and isinstance(value, Mapping):
            found.extend(_leaves(value, f"{path}."))
        else:
            found.append((path, value))
    return found


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`. A path below what is no object stays as it is, to be refused by
    its name."""
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
    """`base` with the leaves of `patch` put over it: what a PATCH means."""
    return nest({**flatten(base), **flatten(patch)})


def read(
    data: Any, defaults: Mapping[str, Any] | None = None
) -> tuple[EndpointSpec, list[FieldError]]:
    """The spec in `data`, and all that is wrong with single fields.

    A refused field has its default in the returned spec, so that further rules can still be
    tried on the others. `defaults` are the installation's (such as the engine), by path.
    """
    if not isinstance(data, Mapping):
        return EndpointSpec(name="", model=""), [not_an_object(data)]
    given = flatten({str(key): value for key, value in data.items()})
    errors = _unknown(given)
    values: dict[str, Any] = {}
    for spec_field in FIELDS:
        fallback = (defaults or {}).get(spec_field.path, spec_field.default)
        if spec_field.path not in given:
            values[spec_field.path] = _own(fallback)
            if fallback is None:
                errors.append(_missing(spec_field))
            continue
        value, problem = spec_field.accept(given[spec_field.path])
        if problem is not None:
            shown = showable(spec_field.path, given[spec_field.path])
            errors.append(FieldError(spec_field.path, shown, *problem))
            value = _own(fallback)
        values[spec_field.path] = value
    return build(values), errors


def _own(fallback: Any) -> Any:
    """A default which nobody else changes: specs are read by the hundred, and copying is dear."""
    if fallback is None:
        return ""
    return deepcopy(fallback) if isinstance(fallback, dict | list) else fallback


def not_an_object(value: Any) -> FieldError:
    return FieldError("", value, "An endpoint is an object.", "Send a JSON object.", "type")


def build(flat: Mapping[str, Any]) -> EndpointSpec:
    """A spec from accepted values by path."""
    data = nest(flat)
    cache = data["cache"]
    return EndpointSpec(
        name=data["name"],
        model=data["model"],
        engine=data["engine"],
        replicas=data["replicas"],
        cache=CacheSpec(l1=L1Spec(**cache["l1"]), l2=L2Spec(**cache["l2"])),
        routing=RoutingSpec(**data["routing"]),
        worker_args=tuple(data["worker_args"]),
        media_domains=tuple(data["media_domains"]),
        resources=ResourcesSpec(**data["resources"]),
        **{name: type(default)(**data[name]) for name, default in DEFAULTS.items()},
        tags=data["tags"],
        manifest=data["manifest"],
    )


def parse(data: Any, defaults: Mapping[str, Any] | None = None) -> EndpointSpec:
    """The spec in `data`, or `SpecErrors`. Looks at single fields only: see `spec_rules.check`."""
    spec, errors = read(data, defaults)
    if errors:
        raise SpecErrors(errors)
    return spec


def _missing(spec_field: SpecField) -> FieldError:
    return FieldError(
        spec_field.path, None, f"{spec_field.label} is required.", spec_field.remedy, "required"
    )


def _unknown(given: Mapping[str, Any]) -> list[FieldError]:
    known = {spec_field.path for spec_field in FIELDS}
    errors = []
    for path, value in given.items():
        if path in known:
            continue
        if path in SECTIONS:
            inside = ", ".join(sorted(p for p in known if p.startswith(f"{path}.")))
            errors.append(
                FieldError(path, value, "This must be an object.", f"It holds: {inside}.", "type")
            )
            continue
        parent = path.rpartition(".")[0]
        siblings = sorted(p for p in known | set(SECTIONS) if p.rpartition(".")[0] == parent)
        errors.append(
            FieldError(
                path,
                value,
                "There is no such field.",
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
    """Changed fields in the order of the form."""
    old, new = before.flat(), after.flat()
    return tuple(
        FieldChange(f.path, f.label, old[f.path], new[f.path], f.effect)
        for f in FIELDS
        if old[f.path] != new[f.path]
    )


def as_audit(changes: tuple[FieldChange, ...]) -> dict[str, list[Any]]:
    """The trail's shape: {"replicas": [1, 2]}."""
    return {change.path: [change.before, change.after] for change in changes}
