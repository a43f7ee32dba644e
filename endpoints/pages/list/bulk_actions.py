"""Bulk verbs: one verb applied to each endpoint separately, with one result each.

Permissions, rules and audit entries are those of `actions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied

from console.core.errors import Refused
from endpoints import actions
from endpoints.actions import Actor

MAX_ITEMS = 200


@dataclass(frozen=True, slots=True)
class BulkItem:
    """Selected endpoint of a bulk action. `generation`: as displayed on selection; None disables
    the check.
    """

    name: str
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Verb:
    """Bulk action on endpoints. `ask`: confirmation, as in "Pause these 3 endpoints?"; `done`:
    result label; `what`: effect on each endpoint; `danger`: irreversible. `act` takes the actor,
    the item, the number of replicas and the request's id.
    """

    key: str
    ask: str
    done: str
    what: str
    icon: str
    act: Callable[[Actor, BulkItem, Any], object]
    danger: bool = False


_VERBS = (
    Verb(
        "scale",
        "Scale",
        "scaling",
        "Removed workers finish their requests first.",
        "adjustments",
        lambda actor, item, replicas: actions.scale(
            actor, item.name, replicas, expected_generation=item.generation
        ),
    ),
    Verb(
        "pause",
        "Pause",
        "pausing",
        "Workers finish their requests and stop. Requests are rejected until resumed.",
        "player-pause",
        lambda actor, item, _: actions.pause(actor, item.name),
    ),
    Verb(
        "resume",
        "Resume",
        "resuming",
        "Restores the number of workers before the pause.",
        "player-play",
        lambda actor, item, _: actions.resume(actor, item.name),
    ),
    Verb(
        "delete",
        "Delete",
        "deleting",
        "Router and workers stop; keys, revisions and events are deleted.",
        "trash",
        lambda actor, item, _: actions.delete(
            actor, item.name, expected_generation=item.generation
        ),
        danger=True,
    ),
)
VERBS = {verb.key: verb for verb in _VERBS}


@dataclass(frozen=True, slots=True)
class BulkResult:
    name: str
    ok: bool
    text: str


def run(
    actor: Actor, verb: str, items: Sequence[BulkItem], *, replicas: Any = None
) -> list[BulkResult]:
    return [_one(actor, VERBS[verb], item, replicas) for item in items[:MAX_ITEMS]]


def _one(actor: Actor, verb: Verb, item: BulkItem, replicas: Any) -> BulkResult:
    try:
        verb.act(actor, item, replicas)
    except Refused as error:
        words = " ".join(f"{problem.message} {problem.remedy}" for problem in error.errors)
        return BulkResult(item.name, ok=False, text=words)
    except PermissionDenied as error:
        return BulkResult(item.name, ok=False, text=str(error))
    return BulkResult(item.name, ok=True, text=f"It {verb.done}.")
