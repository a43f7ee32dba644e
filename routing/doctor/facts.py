"""What was learnt of a router and its workers, before anybody judges it. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from routing.analysis.kv_index import KvIndex

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """An answer. `found` is None where there was no usable one; then `error` is a sentence.
    `status` is HTTP's, 0 where nothing answered."""

    found: T | None = None
    error: str = ""
    status: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """`root`: what was loaded, whatever it is called; adapters have a `parent`."""

    id: str
    root: str
    parent: str
    max_length: int


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """vllm:cache_config_info; "" where this version does not tell. `offloads`: it has tiers
    beyond its own device. `engine`: it has any of vLLM's metrics."""

    engine: bool
    block_size: str = ""
    hash_algorithm: str = ""
    prefix_caching: str = ""
    offloads: bool = False


@dataclass(frozen=True, slots=True)
class Publisher:
    """One rank of /kv_event_sources, as the worker has it."""

    rank: str
    enabled: bool
    endpoint: str
    replay: str
    buffer_steps: int


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker as we see it. `tokens`: ids by probe, None where the worker refuses the probe."""

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
class RoutingFacts:
    """A worker as the router has it."""

    name: str
    url: str
    state: str
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class PlacementFacts:
    """One decision, as far as it matters here. `fallback`: why it was placed without its blocks."""

    time: float
    reason: str
    fallback: str
    status: int
    cached_tokens: int | None
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class RouterFacts:
    """`error`: why the router told nothing, "" if it did. `kv` is None while its strategy needs no
    KV index, or where it did not say; `decisions` are the newest first."""

    error: str = ""
    strategy: str = ""
    refused: str = ""
    needs_restart: tuple[str, ...] = ()
    workers: tuple[RoutingFacts, ...] = ()
    kv: KvIndex | None = None
    kv_error: str = ""
    decisions: tuple[PlacementFacts, ...] = ()
    metrics: Statement[frozenset[str]] = field(default_factory=Statement)


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """`workers`: those we were told of, and those only the router knows. `wanted`: names the router
    should know; None where nobody said."""

    endpoint: str
    router: RouterFacts
    workers: tuple[WorkerFacts, ...] = ()
    wanted: frozenset[str] | None = None
    now: float = 0.0
    seconds: float = 0.0

    def worker(self, name: str) -> WorkerFacts | None:
        return next((worker for worker in self.workers if worker.name == name), None)
