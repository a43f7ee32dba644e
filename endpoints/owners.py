"""Ownership of endpoints by cluster objects that the controller follows."""

from __future__ import annotations

from dataclasses import dataclass

from endpoints.controller.models import Owned
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


def owner_of(endpoint: str) -> Owner | None:
    """Return the endpoint's owner, None for the console."""
    row = Owned.objects.filter(endpoint=endpoint).select_related("follow").first()
    return Owner(row.follow.cluster, row.follow.namespace, row.name) if row else None


def owned_error(endpoint: str, owner: Owner) -> ConflictError:
    return ConflictError(
        "managed",
        f"{endpoint} is owned by the InferenceEndpointConfig {owner}.",
        f"Change that object (kubectl edit inferenceendpointconfig {owner.name} -n "
        f"{owner.namespace}), or stop following its namespace.",
    )
