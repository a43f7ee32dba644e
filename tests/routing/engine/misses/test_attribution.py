"""The parts of a prompt's computed tokens add up, whatever is known of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.engine.misses.attribution import (
    BELOW_BLOCK,
    CAUSES,
    EVICTED_L1,
    FIRST_SEEN,
    PLACED_LOAD,
    MissFacts,
    split,
)

_TOKENS = st.integers(0, 5000)
_REACHES = st.lists(st.tuples(st.sampled_from(CAUSES), st.integers(-10, 6000)), max_size=6)


@given(_TOKENS, _TOKENS, _TOKENS, _REACHES, st.sampled_from(("", "not_cacheable")))
def test_parts_add_up_to_the_computed_tokens(
    prompt: int, cached: int, usable: int, reaches: list[tuple[str, int]], whole: str
) -> None:
    found = split(MissFacts(prompt, cached, usable, reaches, whole))
    assert sum(found.values()) == max(prompt - cached, 0)
    assert all(tokens > 0 for tokens in found.values())
    assert set(found) <= set(CAUSES)


def test_the_first_cause_that_covers_a_token_gets_it() -> None:
    facts = MissFacts(1000, 96, 992, [(PLACED_LOAD, 480), (EVICTED_L1, 800), (PLACED_LOAD, 700)])
    assert split(facts) == {PLACED_LOAD: 384, EVICTED_L1: 320, FIRST_SEEN: 192, BELOW_BLOCK: 8}
