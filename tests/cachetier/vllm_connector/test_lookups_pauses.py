"""The scheduler pauses only after a step without model execution and with pending lookups."""

from __future__ import annotations

import threading

import pytest

from cachetier.vllm_connector import lookups
from cachetier.vllm_connector.lookups import StepPauses


class Event(threading.Event):
    """Remembers how long it was waited for instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(lookups.time, "monotonic", lambda: now[0])
    return now


def make(waiting: bool) -> tuple[StepPauses, Event]:
    one, event = StepPauses(lambda: waiting), Event()
    one._came = event
    return one, event


def test_empty_step_waits_briefly_for_results(clock: list[float]) -> None:
    one, event = make(waiting=True)
    one.after_step()
    assert event.waits == [], "the first step may have run anything"
    clock[0] += 0.0005
    one.after_step()
    assert event.waits == [0.002]


def test_step_with_model_execution_does_not_wait(clock: list[float]) -> None:
    one, event = make(waiting=True)
    for _ in range(3):
        clock[0] += 0.01
        one.after_step()
    assert event.waits == []


def test_step_without_pending_lookups_does_not_wait(clock: list[float]) -> None:
    one, event = make(waiting=False)
    for _ in range(3):
        one.after_step()
    assert event.waits == []


def test_results_end_the_wait() -> None:
    one = StepPauses(lambda: True)
    one.after_step()
    one.news()
    assert one._came.is_set()
    one.after_step()
    assert not one._came.is_set(), "old news do not end the next one"
