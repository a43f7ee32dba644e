"""Properties of the cost formula, independent of its constants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.engine.policies import cost

tokens = st.integers(0, 1_000_000)
few = st.integers(0, 500)


def test_idle_worker_has_no_load() -> None:
    assert cost.load(0, 0, 0) == 0


@given(tokens, few, few)
def test_load_grows_with_work(backlog: int, waiting: int, decoding: int) -> None:
    load = cost.load(backlog, waiting, decoding)
    assert cost.load(backlog + 1, waiting, decoding) > load
    assert cost.load(backlog, waiting + 1, decoding) > load
    assert cost.load(backlog, waiting, decoding + 1) > load


@given(tokens, tokens, tokens, tokens)
def test_cost_grows_with_load_and_with_what_must_be_computed(
    load: int, more_load: int, uncached: int, more: int
) -> None:
    least = cost.cost(load, uncached)
    assert cost.cost(load + more_load, uncached + more) >= least
    if more:
        assert cost.cost(load, uncached + more) > least


@given(st.integers(1, 200_000))
def test_no_copy_is_made_while_waiting_costs_as_much(held: int) -> None:
    """Else every prompt that follows its own prefix at once would be computed twice."""
    there = cost.cost(cost.load(held, 1, 0), 100)
    elsewhere = cost.cost(cost.load(0, 0, 0), held + 100)
    if held > 100:
        assert there < elsewhere


@given(st.integers(1, 200_000), st.integers(1, 500))
def test_shared_prefix_is_copied_when_enough_requests_wait(held: int, question: int) -> None:
    """However long the prefix and however short the questions; no request waits without bound."""
    elsewhere = cost.cost(cost.load(0, 0, 0), held + question)
    waiting = 1
    while cost.cost(cost.load(waiting * question, waiting, 256), question) < elsewhere:
        waiting += 1
    assert waiting < 100


@given(st.integers(0, 8), tokens)
def test_running_decodes_break_ties_of_prompt_load(n: int, backlog: int) -> None:
    assert cost.load(backlog, 1, n) < cost.load(backlog, 1, n + 1)
    # but a dozen of them does not send a prompt away from a thousand tokens it has computed
    assert cost.cost(cost.load(0, 0, 12), 0) < cost.cost(0, 1000)
