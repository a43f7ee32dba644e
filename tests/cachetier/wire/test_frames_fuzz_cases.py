"""Former fuzzing failures, all seeds, and random protocol words against the node's parser.

In a process of its own, as they make the reader's constants small and stop the clocks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CASES = Path(__file__).parent / "fuzz_cases"
_REPLAY = """
import sys
from pathlib import Path
from hypothesis import given, settings, strategies as st
from tests.fuzz.resp import TARGETS
from tests.fuzz.resp_seeds import SEEDS, WORDS

name, folder = sys.argv[1:]
target = TARGETS[name]
for data in [*SEEDS[name], *(path.read_bytes() for path in sorted(Path(folder).glob("*")))]:
    target(data)

sentences = st.lists(
    st.one_of(
        st.sampled_from(WORDS), st.binary(max_size=8), st.integers(0, 300).map(lambda n: b"x" * n)
    ),
    max_size=20,
).map(b"".join)

@settings(max_examples=150, deadline=None, database=None)
@given(st.binary(min_size=4, max_size=4), sentences)
def sentence(steer, wire):
    target(steer + wire)

@settings(max_examples=150, deadline=None, database=None)
@given(st.data())
def one_change(data):
    seed = data.draw(st.sampled_from(SEEDS[name]))
    at, cut = data.draw(st.integers(0, len(seed))), data.draw(st.integers(0, 3))
    word = data.draw(st.one_of(st.sampled_from(WORDS), st.binary(max_size=3)))
    target(seed[:at] + word + seed[at + cut:])

sentence()
one_change()
"""


@pytest.mark.parametrize("name", ["resp", "sessions", "globs"])
def test_former_failures_stay_fixed_for_protocol_words(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REPLAY, name, str(CASES / name)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-4000:]
