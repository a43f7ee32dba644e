"""Bulk verbs: one verb applied to each endpoint separately, with one result each.

Permissions, rules and audit entries are those of `actions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied

from endpoints import actions
from endpoints.actions import Actor
from endpoints.refusals import RefusalError
from endpoints.spec.endpoint_spec import SpecErrors

MAX_ITEMS = 200


@dataclass(frozen=True, slots=True)
class Verb:
    """`ask`: confirmation, as in "Pause these 3 endpoints?"; `done`: result label; `what`: effect
    on each endpoint; `danger`: irreversible.
    """

    key: str
    ask: str
    done: str
    what: str
    icon: str
    danger: bool = False


VERBS = {
    verb.key: verb
    for verb in (
        Verb(
            "scale",
            "Scale",
            "is scaled",
            "Workers that leave finish their requests first.",
            "adjustments",
        ),
        Verb(
            "pause",
            "Pause",
            "is being paused",
            "Its workers finish their requests and stop; then requests are refused.",
            "player-pause",
        ),
        Verb(
            "resume",
            "Resume",
            "is resumed",
            "It wants as many workers as before the pause.",
            "player-play",
        ),
        Verb(
            "delete",
            "Delete",
            "is being deleted",
            "Its router and workers go; its keys, revisions and events are forgotten.",
            "trash",
            danger=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class BulkItem:
    """`generation`: as displayed on selection; None disables the check."""

    name: str
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class BulkResult:
    name: str
    ok: bool
    text: str


def run(
    actor: Actor,
    verb: str,
    items: Sequence[BulkItem],
    *,
    replicas: Any = None,
    request_id: str = "",
) -> list[BulkResult]:
    act = _ACTS[verb]
    return [_one(actor, verb, act, item, replicas, request_id) for item in items[:MAX_ITEMS]]


Act = Callable[[Actor, BulkItem, Any, str], object]


def _one(
    actor: Actor, verb: str, act: Act, item: BulkItem, replicas: Any, request_id: str
) -> BulkResult:
    try:
        act(actor, item, replicas, request_id)
    except (SpecErrors, RefusalError) as error:
        words = " ".join(f"{one.message} {one.remedy}" for one in error.errors)
        return BulkResult(item.name, ok=False, text=words)
    except PermissionDenied as error:
        return BulkResult(item.name, ok=False, text=str(error))
    return BulkResult(item.name, ok=True, text=f"It {VERBS[verb].done}.")


def _scale(actor: Actor, item: BulkItem, replicas: Any, request_id: str) -> object:
    return actions.scale(
        actor, item.name, replicas, expected_generation=item.generation, request_id=request_id
    )


def _pause(actor: Actor, item: BulkItem, _replicas: Any, request_id: str) -> object:
    return actions.pause(actor, item.name, request_id=request_id)


def _resume(actor: Actor, item: BulkItem, _replicas: Any, request_id: str) -> object:
    return actions.resume(actor, item.name, request_id=request_id)


def _delete(actor: Actor, item: BulkItem, _replicas: Any, request_id: str) -> object:
    return actions.delete(
        actor, item.name, expected_generation=item.generation, request_id=request_id
    )


_ACTS: dict[str, Act] = {
    "scale": _scale,
    "pause": _pause,
    "resume": _resume,
    "delete": _delete,
}
