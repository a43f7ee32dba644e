"""Former fuzzing failures, all seeds, and random protocol words against the router's parsers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.seeds import SEEDS, WORDS
from tests.fuzz.targets import TARGETS

CASES = sorted(path for path in (Path(__file__).parent / "fuzz_cases").glob("*/*"))
SENTENCE = st.lists(
    st.one_of(
        st.sampled_from(WORDS),
        st.binary(max_size=8),
        st.integers(0, 600).map(lambda size: b"x" * size),
    ),
    max_size=25,
).map(b"".join)


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_former_failures_stay_fixed(case: Path) -> None:
    TARGETS[case.parent.name](case.read_bytes())


def test_every_target_has_its_cases_folder() -> None:
    assert {case.parent.name for case in CASES} <= set(TARGETS) == set(SEEDS)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_valid(name: str) -> None:
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", ["requests", "answers", "chunks"])
@settings(max_examples=60, deadline=None)
@given(steer=st.binary(min_size=5, max_size=5), wire=SENTENCE)
def test_sequences_of_protocol_words(name: str, steer: bytes, wire: bytes) -> None:
    TARGETS[name](steer + wire)


@pytest.mark.parametrize("name", ["requests", "answers"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_valid_input_with_one_mutation(name: str, data: st.DataObject) -> None:
    """Most bugs of parsers are one byte away from what is right."""
    seed = data.draw(st.sampled_from(SEEDS[name]))
    at = data.draw(st.integers(0, len(seed)))
    cut = data.draw(st.integers(0, 3))
    word = data.draw(st.one_of(st.sampled_from(WORDS), st.binary(max_size=3)))
    TARGETS[name](seed[:at] + word + seed[at + cut :])
