"""Rollout plans as a table."""

from __future__ import annotations

import pytest

from console.provisioners.base import ReplicaObservation, ReplicaState
from console.provisioners.rollout import RolloutPlan, plan_step

STATES = {
    "r": ReplicaState.READY,
    "s": ReplicaState.STARTING,
    "x": ReplicaState.STOPPING,
    "b": ReplicaState.BACKOFF,
    "e": ReplicaState.EXITED,
    "u": ReplicaState.UNKNOWN,
}


def observed(text: str) -> list[ReplicaObservation]:
    """Parse "R s . b" into replicas 0..: capitals run the wanted spec, a dot is missing."""
    return [
        ReplicaObservation(
            f"demo-{index}", index, STATES[letter.lower()], "new" if letter.isupper() else "old", {}
        )
        for index, letter in enumerate(text.split())
        if letter != "."
    ]


@pytest.mark.parametrize(
    ("wanted", "seen", "expected"),
    [
        (2, "", RolloutPlan(create=(0, 1))),
        (2, "R R", RolloutPlan()),
        (3, "R . R", RolloutPlan(create=(1,))),
        (1, "R R R", RolloutPlan(remove=(2, 1))),
        (0, "R X", RolloutPlan(remove=(0,))),
        (1, "R X", RolloutPlan()),  # already stopping
        (2, "X R", RolloutPlan()),  # its index is in use until it is gone
        (1, "r", RolloutPlan(replace=0)),
        (3, "r r r", RolloutPlan(replace=0)),
        (3, "S r r", RolloutPlan()),  # one at a time
        (3, "X r r", RolloutPlan()),
        (3, "R r r", RolloutPlan(replace=1)),
        (3, "R R r", RolloutPlan(replace=2)),
        (3, "r . r", RolloutPlan(create=(1,))),  # a missing replica does not serve
        (2, "r r r", RolloutPlan(remove=(2,), replace=0)),
        # A replica that does not serve is replaced first and at once.
        (2, "r b", RolloutPlan(replace=1)),
        (3, "b s r", RolloutPlan(replace=0)),
        (3, "B e r", RolloutPlan(replace=1)),
        (2, "s s", RolloutPlan(replace=0)),
        # One that may serve is treated as serving,
        (2, "S u", RolloutPlan()),
        (2, "R u", RolloutPlan(replace=1)),
        (2, "U r", RolloutPlan()),
        # but hung replicas do not wait for each other forever.
        (3, "u u u", RolloutPlan(replace=0)),
        (3, "R u u", RolloutPlan(replace=1)),
        (3, "S u u", RolloutPlan()),
    ],
)
def test_plan(wanted: int, seen: str, expected: RolloutPlan) -> None:
    assert plan_step(wanted, "new", observed(seen)) == expected
