"""What a revision is blamed for, and what it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from endpoints.lifecycle.facts import LifecycleFacts, ObservedWorker, Trouble
from endpoints.lifecycle.phases import decide
from endpoints.lifecycle.remedies import find_blame, remedy_of

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


@pytest.mark.parametrize(
    ("cause", "fix"),
    [
        ("exit code 2: unrecognized arguments: --nonsense=1", "worker arguments"),
        ("exit code 1: HFValidationError: Repo id must be in the form", "model name"),
        ("exit code 1: ValidationError: User-specified max_model_len (9) is greater", "max-model"),
        ("exit code 1: OutOfMemoryError: CUDA out of memory.", "gpu-memory-utilization"),
        ("signal 9 (SIGKILL)", "resources.memory_gib"),
    ],
)
def test_crash_loop_leads_with_its_cause_and_names_the_fix(cause: str, fix: str) -> None:
    crashed = replace(NEW, crashes=3, message=f"Crashed ({cause}). Restarts automatically.")
    verdict = decide(facts(workers=(crashed,), served_once=False))
    assert verdict.message.startswith(
        f"new crashed 3 times before becoming ready. Crashed ({cause})"
    )
    assert fix in remedy_of(verdict)


def test_one_crash_is_singular() -> None:
    gone = replace(NEW, crashes=1, gave_up=True)
    assert "crashed 1 time before" in decide(facts(workers=(gone,), served_once=False)).message
