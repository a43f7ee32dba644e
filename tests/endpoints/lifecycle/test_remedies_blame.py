"""What a revision is blamed for, and what it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from endpoints.lifecycle.facts import LifecycleFacts, ObservedWorker, Trouble
from endpoints.lifecycle.remedies import find_blame

NEW = ObservedWorker("new", ready=False, running=True, current=True)
OLD = ObservedWorker("old", ready=True, running=True, current=False)
GAVE_UP = Trouble(True, "ProgressDeadlineExceeded", "It stands still.")
LOOPING = replace(NEW, crashes=3, message="Exited with 1.")


def facts(**given: Any) -> LifecycleFacts:
    """A change on its way, with the old worker serving."""
    rolling = {"wanted": 1, "served_once": True, "workers": (OLD, NEW)}
    return LifecycleFacts(**{**rolling, **given})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"failed": GAVE_UP}, "ProgressDeadlineExceeded"),
        ({"workers": (OLD, LOOPING)}, "WorkersCrashLooping"),
        ({"overdue": True}, "DeployDeadlineExceeded"),
        ({"trouble": Trouble(True, "RefusedByCluster", "No.")}, "RefusedByCluster"),
        ({"trouble": Trouble(True, "MissingCapability", "No.")}, "MissingCapability"),
    ],
)
def test_blamed(given: dict[str, Any], reason: str) -> None:
    found = find_blame(facts(**given))
    assert found is not None
    assert found.reason == reason
    assert found.message


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"failed": GAVE_UP, "served_once": False},
        {"failed": GAVE_UP, "served": True},
        {"failed": GAVE_UP, "wanted": 0},
        {"failed": GAVE_UP, "deleting": True},
        {"failed": GAVE_UP, "workers": (replace(NEW, ready=True),)},
        {"failed": GAVE_UP, "trouble": Trouble(False, "ClusterUnreachable", "Away.")},
        {"overdue": True, "trouble": Trouble(True, "ClusterRefused", "No right.")},
        {"overdue": True, "trouble": Trouble(True, "FieldConflict", "Theirs.")},
        {"workers": (OLD, replace(LOOPING, crashes=2))},
        {"workers": (OLD, replace(LOOPING, current=False))},
        {"workers": (OLD, replace(LOOPING, leaving=True))},
    ],
)
def test_not_blamed(given: dict[str, Any]) -> None:
    assert find_blame(facts(**given)) is None
