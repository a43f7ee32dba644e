"""What a pass tells an endpoint's router, and what it hears: frozen facts, never rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from console.provisioners.base import Observation
from endpoints.keys.terms import KeyFacts
from endpoints.lifecycle.facts import Impairment
from endpoints.spec.endpoint_spec import EndpointSpec

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """Facts of an endpoint that its components need. `model_folder`: local model files, "" without
    any or for simulated workers, which have their own tokenizer. `cluster_namespace`: namespace of
    its objects, "" on this machine. `l1_tokens`: size of a worker's L1; 0: none, or the model's KV
    bytes are unknown. `url`: for callers, as last observed. `wanted`: workers that an autoscaler
    wants, None without one.
    """

    id: str
    name: str
    namespace: str
    spec: EndpointSpec
    generation: int
    keys: tuple[KeyFacts, ...] = ()
    model_folder: str = ""
    cluster_namespace: str = ""
    l1_tokens: int = 0
    url: str = ""
    wanted: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker as seen by callers. `draining`: send no new requests. `channels`: where it publishes
    KV events, by the names of worker_spec.
    """

    name: str
    url: str
    ready: bool
    draining: bool
    simulated: bool
    channels: Mapping[str, str] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """Observed state of a component of an endpoint. `ready`: serving exactly the given workers.
    `impairment`: serving, but not as requested, which makes the endpoint Degraded.

    `url` is for callers; `ask_url` is the console's own way to it, "" for the same URL. `facts`
    may hold "workers": {name: {"state": up|down|draining, "in_flight": n}}; while a draining
    worker is missing there or has requests in flight, it is not stopped before the drain
    deadline.
    """

    ready: bool
    reason: str = ""
    message: str = ""
    url: str = ""
    admin_url: str = ""
    facts: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    impairment: Impairment | None = None
    workload: str = ""
    seen: Observation | None = None
    ask_url: str = ""


class Component(Protocol):
    """Both methods are idempotent and short; they may raise TemporaryError or PermanentError."""

    name: str

    def reconcile(
        self, endpoint: EndpointFacts, workers: tuple[WorkerFacts, ...]
    ) -> ComponentStatus: ...

    def delete(self, endpoint: EndpointFacts) -> bool:
        """Delete it; return True once nothing is left."""
        ...
