"""How other rooms take part in an endpoint's life without this one knowing them.

Promises that whoever registers a component (the routing room, in its `AppConfig.ready`) is asked on
every pass of the reconciler, with frozen facts and never a database row. Must not know routing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from console.provisioners.base import Observation
from endpoints.keys.terms import NO_TERMS, KeyTerms
from endpoints.lifecycle.phases import Impairment
from endpoints.spec.endpoint_spec import EndpointSpec

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A key which callers may use: its hash, never itself. `pin`: may choose the worker.
    `spent_until` and `expires`: epoch seconds, 0 for never. A key being replaced comes twice under
    its id. `group`: the id of its group of keys."""

    id: str
    sha256: str
    pin: bool = False
    terms: KeyTerms = NO_TERMS
    spent_until: float = 0.0
    expires: float = 0.0
    group: str = ""


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """`model_folder`: the model's files on this machine; "" where there are none, or where the
    workers are simulated and have a tokenizer of their own. `cluster_namespace`: where its objects
    are on its cluster, "" on this machine."""

    id: str
    name: str
    namespace: str
    spec: EndpointSpec
    generation: int
    keys: tuple[KeyFacts, ...] = ()
    model_folder: str = ""
    cluster_namespace: str = ""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker as callers should see it. `draining`: it is about to leave, send it nothing new.
    `channels`: where it publishes what its cache holds, by the names of worker_spec."""

    name: str
    url: str
    ready: bool
    draining: bool
    simulated: bool
    channels: Mapping[str, str] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """`ready`: it serves, and has taken over exactly the workers it was given. `impairment`: it
    serves, but not as it was asked to; then the endpoint is Degraded for that reason.

    `url` is for callers; `ask_url` is where the console itself reaches it, "" for there as well.
    `facts` may hold "workers": {name: {"state": up|down|draining, "in_flight": n}}; while a leaving
    worker is absent there or has requests in flight, it is not stopped before the drain deadline.
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
    """Both verbs are idempotent and short; they may raise TemporaryError or PermanentError."""

    name: str

    def reconcile(
        self, endpoint: EndpointFacts, workers: tuple[WorkerFacts, ...]
    ) -> ComponentStatus:
        """Apply what the endpoint needs, and say how it stands."""
        ...

    def delete(self, endpoint: EndpointFacts) -> bool:
        """Ask for the end of it; True when nothing is left."""
        ...


_components: dict[str, Component] = {}


def register(component: Component) -> None:
    """Take part from now on; a second registration under a name replaces the first."""
    _components[component.name] = component


def all_components() -> tuple[Component, ...]:
    return tuple(_components.values())
