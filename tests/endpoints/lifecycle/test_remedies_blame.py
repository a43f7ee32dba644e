"""Failures attributed to a revision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.provisioners.crash_cause import death_text, exit_text
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
def test_revision_is_blamed(given: dict[str, Any], reason: str) -> None:
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
def test_revision_is_not_blamed(given: dict[str, Any]) -> None:
    assert find_blame(facts(**given)) is None


LOGS = Path(__file__).parents[2] / "console" / "provisioners" / "crashes"
"""Logs of vLLM 0.32."""


@pytest.mark.parametrize(
    ("log", "fix"),
    [
        ("bad_choice", "Fix the worker arguments"),
        ("unknown_argument", "Fix the worker arguments"),
        ("missing_model", "Correct the model name"),
        ("unknown_hub_model", "Correct the model name"),
        ("context_too_long", "Lower --max-model-len"),
        ("heads_not_divisible", "number of GPUs"),
        ("kv_memory_too_small", "--gpu-memory-utilization"),
        ("port_taken", "holds the port"),
        (
            "ValueError: No common block size for 16 (CPU_ATTN: [MultipleOf(32)]).",
            "cache.l1.chunk_tokens",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory.", "--gpu-memory-utilization"),
        ("", "resources.memory_gib"),
    ],
)
def test_crash_loop_leads_with_its_cause_and_names_the_fix(log: str, fix: str) -> None:
    """Without any log, the worker was killed."""
    kept = LOGS / f"{log}.txt"
    text = kept.read_text(encoding="utf-8") if log and kept.is_file() else log
    how = exit_text(1) if log else exit_text(0, 9)
    cause = death_text(how, text, by_signal=not log)
    crashed = replace(NEW, crashes=3, message=f"Crashed ({cause}). Restarts automatically.")
    verdict = decide(facts(workers=(crashed,), served_once=False))
    assert verdict.message.startswith(
        f"new crashed 3 times before becoming ready. Crashed ({cause})"
    )
    assert fix in remedy_of(verdict)


def test_one_crash_is_singular() -> None:
    gone = replace(NEW, crashes=1, gave_up=True)
    assert "crashed 1 time before" in decide(facts(workers=(gone,), served_once=False)).message
