"""Facts about a router and its workers. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from routing.client.router_reports import RouterReport

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """Result of one request. `found` is None without a usable response; `error` then states why.
    `status` is HTTP's, 0 without a response.
    """

    found: T | None = None
    error: str = ""
    status: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """Served model; `root` is the loaded one, whatever its name; adapters have a `parent`."""

    id: str
    root: str
    parent: str
    max_length: int


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """vllm:cache_config_info; "" where this version lacks a label. `offloads`: has tiers beyond the
    device. `engine`: exports vLLM metrics.
    """

    engine: bool
    block_size: str = ""
    hash_algorithm: str = ""
    prefix_caching: str = ""
    offloads: bool = False


@dataclass(frozen=True, slots=True)
class Publisher:
    """One rank of /kv_event_sources, as reported by the worker."""

    rank: str
    enabled: bool
    endpoint: str
    replay: str
    buffer_steps: int


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """Facts about one worker. `tokens`: ids by probe, None where the worker rejects it."""

    name: str
    url: str
    version: Statement[str] = field(default_factory=Statement)
    models: Statement[tuple[Model, ...]] = field(default_factory=Statement)
    cache: Statement[CacheConfig] = field(default_factory=Statement)
    publishers: Statement[tuple[Publisher, ...]] = field(default_factory=Statement)
    tokens: Statement[dict[str, tuple[int, ...] | None]] = field(default_factory=Statement)

    @property
    def answers(self) -> bool:
        return bool(self.version.status or self.models.status or self.cache.status)


@dataclass(frozen=True, slots=True)
class PlacementFacts:
    """Facts of one decision. `fallback`: why it was placed without block matches."""

    time: float
    reason: str
    fallback: str
    status: int
    cached_tokens: int | None
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class RouterFacts(RouterReport):
    """Facts of a router that the doctor judges. `kv` is None also if it did not report one;
    `decisions` are newest first.
    """

    refused: str = ""
    needs_restart: tuple[str, ...] = ()
    kv_error: str = ""
    decisions: tuple[PlacementFacts, ...] = ()
    metrics: Statement[frozenset[str]] = field(default_factory=Statement)


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """Facts about an endpoint. `router`: the one that a check examines, of all `routers`.
    `workers` includes those only a router reports. `wanted`: names a router should have; None if
    unknown.
    """

    endpoint: str
    router: RouterFacts
    workers: tuple[WorkerFacts, ...] = ()
    wanted: frozenset[str] | None = None
    now: float = 0.0
    seconds: float = 0.0
    routers: tuple[RouterFacts, ...] = ()
