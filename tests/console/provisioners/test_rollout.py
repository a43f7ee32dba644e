"""Rollout plans as a table."""

from __future__ import annotations

import pytest

from console.provisioners.base import ReplicaObservation, ReplicaState
from console.provisioners.rollout import Plan, plan

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
            f"demo-{index}",
            index,
            STATES[letter.lower()],
            "new" if letter.isupper() else "old",
            {},
        )
        for index, letter in enumerate(text.split())
        if letter != "."
    ]


@pytest.mark.parametrize(
    ("wanted", "seen", "expected"),
    [
        (2, "", Plan(create=(0, 1))),
        (2, "R R", Plan()),
        (3, "R . R", Plan(create=(1,))),
        (1, "R R R", Plan(remove=(2, 1))),
        (0, "R X", Plan(remove=(0,))),
        (1, "R X", Plan()),  # already stopping
        (2, "X R", Plan()),  # its index is in use until it is gone
        (1, "r", Plan(replace=0)),
        (3, "r r r", Plan(replace=0)),
        (3, "S r r", Plan()),  # one at a time
        (3, "X r r", Plan()),
        (3, "R r r", Plan(replace=1)),
        (3, "R R r", Plan(replace=2)),
        (3, "r . r", Plan(create=(1,))),  # a missing replica does not serve
        (2, "r r r", Plan(remove=(2,), replace=0)),
        # A replica that does not serve is replaced first and at once.
        (2, "r b", Plan(replace=1)),
        (3, "b s r", Plan(replace=0)),
        (3, "B e r", Plan(replace=1)),
        (2, "s s", Plan(replace=0)),
        # One that may serve is treated as serving,
        (2, "S u", Plan()),
        (2, "R u", Plan(replace=1)),
        (2, "U r", Plan()),
        # but hung replicas do not wait for each other forever.
        (3, "u u u", Plan(replace=0)),
        (3, "R u u", Plan(replace=1)),
        (3, "S u u", Plan()),
    ],
)
def test_plan(wanted: int, seen: str, expected: Plan) -> None:
    assert plan(wanted, "new", observed(seen)) == expected
