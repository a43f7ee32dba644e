"""Recovery under any sequence of faults: the index contains no false entry."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.engine.kv.recovery import BACKOFF_LONGEST_S, REPLAY_TIMEOUT_S
from tests.routing.engine.kv.publisher import Source

STEPS = st.lists(
    st.sampled_from(
        ["publish"] * 8
        + ["publish_lost"] * 3
        + ["restart", "reconnect", "answer", "answer", "answer", "wait", "silence", "lost", "late"]
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from([1, 3, 10_000]), st.booleans())
def test_index_is_always_a_true_suffix_of_one_process(
    steps: list[str], buffer: int, replay: bool
) -> None:
    source = Source(buffer, replay)
    source.connect()
    for step in steps:
        if step == "publish":
            source.publish()
        elif step == "publish_lost":
            source.publish(lost=True)
        elif step == "restart":
            source.restart()
            source.follower.is_disconnected()
            source.follower.is_connected(source.now)
        elif step == "reconnect":
            source.follower.is_disconnected()
            source.follower.is_connected(source.now)
        elif step == "answer":
            source.answer()
        elif step == "wait":
            source.wait(1.0)
        elif step == "silence":
            source.answering = False
            source.wait(REPLAY_TIMEOUT_S)
            source.replay_starts.clear()
            source.answering = True
        elif step == "lost":
            source.restart()
            source.follower.is_lost()
            source.follower.is_back(source.now)
        else:
            source.wait(0.1)
        _check(source)
    for _ in range(12):
        source.wait(BACKOFF_LONGEST_S)
        _check(source)
    if replay:
        # Quiet: all events are applied.
        first = source.number - len(source.applied)
        assert source.has(*range(first, source.number))
        assert len(source.applied) >= min(buffer, source.number)
        assert source.follower.partial == (first > 0)
    else:
        source.publish()
        assert source.applied[-1] == b"%d:%d" % (source.process, source.number - 1)
        _check(source)


def _check(source: Source) -> None:
    """One process, and no hole."""
    found = [tuple(map(int, payload.split(b":"))) for payload in source.applied]
    assert len({process for process, _ in found}) <= 1
    numbers = [number for _, number in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    assert source.follower.partial or not numbers or numbers[0] == 0 or not found
