"""Pace of the batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.engine.peers.outbox import BATCH_INTERVAL_S, wait_for_batch


def test_first_batch_after_a_pause_goes_at_once():
    assert wait_for_batch(BATCH_INTERVAL_S, 1e9 + 0.0123) == 0.0


@given(st.floats(0, BATCH_INTERVAL_S * 0.999), st.integers(1, 10**6), st.floats(0, 1))
def test_busy_routers_publish_at_the_same_times(since_s, epoch, part):
    clock_s = epoch + part
    wait_s = wait_for_batch(since_s, clock_s)
    beats = (clock_s + wait_s) / BATCH_INTERVAL_S
    assert abs(beats - round(beats)) < 1e-3
    assert BATCH_INTERVAL_S * 0.499 < since_s + wait_s <= BATCH_INTERVAL_S * 2.001
