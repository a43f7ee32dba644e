"""Recent kvaware failures from monotonic counters."""

from __future__ import annotations

from routing.engine.kvaware.prediction_accuracy import (
    STEP_S,
    WINDOW_S,
    CounterWindow,
    PredictionAccuracy,
)


def test_window_starts_empty() -> None:
    window = CounterWindow(5.0)
    assert window.show(5.0, 0, {"timeout": 0}) == {"window_s": 0.0, "requests": 0, "fallbacks": {}}
    assert window.show(6.0, 9, {"timeout": 3}) == {
        "window_s": 1.0,
        "requests": 12,
        "fallbacks": {"timeout": 3},
    }


def test_samples_older_than_the_window_are_dropped() -> None:
    window = CounterWindow(0.0)
    found, lost = 0, {"timeout": 0, "no_events": 0}
    now = 0.0
    lost["no_events"] = 50  # right at the beginning, never again
    while now < WINDOW_S - STEP_S:
        now += STEP_S
        found += 1
        window.mark(now, found, lost)
    shown = window.show(now, found, lost)
    assert shown == {"window_s": now, "requests": found + 50, "fallbacks": {"no_events": 50}}
    while now < 2 * WINDOW_S:
        now += STEP_S
        found += 1
        window.mark(now, found, lost)
    shown = window.show(now, found, lost)
    assert shown == {"window_s": WINDOW_S, "requests": WINDOW_S / STEP_S, "fallbacks": {}}


def test_number_of_marks_is_bounded() -> None:
    window = CounterWindow(0.0)
    for tick in range(10_000):
        window.mark(tick * 0.5, tick, {})
    assert len(window._marks) <= WINDOW_S / STEP_S + 2
    assert window.show(4999.5, 9_999, {})["window_s"] <= WINDOW_S + STEP_S


def test_worker_that_caches_other_tokens_is_doubted_until_predictions_agree() -> None:
    meter = PredictionAccuracy()
    rebuilds = sum(meter.observe(0, 640, 16) for _ in range(10))
    assert (rebuilds, meter.doubted, meter.lying) == (1, True, False), "one rebuild did not help"
    for _ in range(20):
        assert not meter.observe(0, 640, 16)
    assert meter.doubted
    for _ in range(30):
        meter.observe(640, 640, 16)
    assert (meter.doubted, meter.strikes) == (False, 0)


def test_single_cold_answers_cause_no_doubt() -> None:
    meter = PredictionAccuracy()
    for number in range(200):
        meter.observe(0 if number % 10 == 0 else 640, 640, 16)
    assert not meter.doubted
