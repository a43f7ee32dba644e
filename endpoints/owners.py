"""Ownership of endpoints by cluster objects, registered by the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from endpoints.refusals import ConflictError


@dataclass(frozen=True, slots=True)
class Owner:
    cluster: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} in {self.cluster}"


class System:
    """The console itself, or a user of its commands on this machine."""

    label = "system"


class OwningSystem(System):
    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.label = f"{owner}"[:150]


Find = Callable[[str], Owner | None]
_find: list[Find] = []


def register(find: Find) -> None:
    """Register `find(name)`, which returns the endpoint's owner, None for the console."""
    _find[:] = [find]


def owner_of(endpoint: str) -> Owner | None:
    return next((owner for find in _find if (owner := find(endpoint)) is not None), None)


def owned_error(endpoint: str, owner: Owner) -> ConflictError:
    return ConflictError(
        "managed",
        f"{endpoint} is owned by the InferenceEndpointConfig {owner}.",
        f"Change that object (kubectl edit inferenceendpointconfig {owner.name} -n "
        f"{owner.namespace}), or stop following its namespace.",
    )
