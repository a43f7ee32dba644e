"""Prompts of other routers in the miss ledger."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence

import pytest

from routing.engine.kv.match import Blocks
from routing.engine.misses import peer_prompts
from routing.engine.misses.history import PromptHistory
from routing.engine.misses.peer_prompts import PeerPrompts
from routing.engine.observe.decisions import Decision, known_elsewhere
from routing.engine.peers import messages
from routing.engine.peers.messages import Batch, Placement
from routing.engine.policies.base import RequestFacts
from routing.engine.request import RoutedRequest
from tests.routing.engine.harness import routed_request

CHAIN = array("Q", range(1, 17))
DIALECT = 7


@pytest.fixture
def prompts() -> PeerPrompts:
    return PeerPrompts(PromptHistory())


def batch(*placements: tuple[str, array[int], int]) -> Batch:
    placed = [
        Placement(number, worker, block_size, 64.0, messages.pack_names(chain))
        for number, (worker, chain, block_size) in enumerate(placements)
    ]
    return Batch(messages.VERSION, "b" * 8, 1, DIALECT, False, [], placed)


def own(chain: array[int], chosen: str, duration_s: float | None = None) -> RoutedRequest:
    placed = Decision("d", 0.0, "prefixaware")
    placed.chosen, placed.duration_s = chosen, duration_s
    return routed_request(RequestFacts(chain, len(chain) * 64, 64.0, b""), placed)


def spans(prompts: PeerPrompts, chain: array[int] = CHAIN) -> list[int]:
    return [blocks for blocks, _, _ in prompts._history.spans(chain)]


def test_prompt_counts_as_computed_once_it_is_answered(prompts: PeerPrompts) -> None:
    prompts.note_batch(batch(("w", CHAIN, 0)), DIALECT)
    assert spans(prompts) == []
    prompts.note_batch(batch(("w", CHAIN, 0)), DIALECT)
    assert spans(prompts) == [16]
    assert prompts._history.here("w")


def test_memory_of_a_peer_was_answered(prompts: PeerPrompts) -> None:
    prompts.note_batch(batch(("w", CHAIN, 0)), DIALECT, memory=True)
    assert spans(prompts) == [16]


def test_other_hashes_are_ignored(prompts: PeerPrompts) -> None:
    prompts.note_batch(batch(("w", CHAIN, 0)), DIALECT + 1, memory=True)
    prompts.note_batch(batch(("w", CHAIN, 32)), DIALECT, memory=True)  # KV blocks
    assert spans(prompts) == []


@pytest.mark.parametrize(
    ("chosen", "smaller", "duration_s", "blocks"),
    [("v", True, None, 10), ("v", False, None, 0), ("w", True, None, 0), ("v", True, 0.1, 0)],
    ids=["doubled", "counted by the peer", "same worker", "answered"],
)
def test_prefix_sent_to_two_workers_at_once_is_counted_by_one_router(
    prompts: PeerPrompts, chosen: str, smaller: bool, duration_s: float | None, blocks: int
) -> None:
    request = own(CHAIN[:10] + array("Q", [99]), chosen, duration_s)
    other = own(array("Q", [50, 51]), chosen)
    for one in (request, other):
        prompts.placed(one, 100.0)
    prompts.sent("w", CHAIN, smaller, 100.1)
    assert prompts.take_doubled(request) == blocks
    assert prompts.take_doubled(request) == prompts.take_doubled(other) == 0


@pytest.mark.parametrize(("known", "blocks"), [(16, 0), (4, 16)], ids=["all", "a part"])
def test_prefix_that_the_peer_knew_elsewhere_is_counted_by_the_peer(
    prompts: PeerPrompts, known: int, blocks: int
) -> None:
    request = own(CHAIN, "v")
    prompts.placed(request, time.time())
    placement = Placement(1, "w", 0, 64.0, messages.pack_names(CHAIN), known=known)
    sent = Batch(messages.VERSION, "b" * 8, 1, DIALECT, False, [], [placement])
    prompts.note_batch(sent, DIALECT, smaller=True)
    assert prompts.take_doubled(request) == blocks


@pytest.mark.parametrize(
    ("prompt", "tokens", "sizes", "known"),
    [
        (1024, 0, {}, 0),
        (1024, 640, {}, 10),
        (1024, 1008, {16: ()}, 16),
        (1024, 1024, {16: ()}, 16),
        (670, 656, {16: ()}, 16),
    ],
    ids=["nothing", "prefix blocks", "all but the last KV block", "all", "long words"],
)
def test_blocks_known_on_another_worker(
    prompt: int, tokens: int, sizes: dict[int, Sequence[int]], known: int
) -> None:
    candidates = [("v", 0, 0, 0.0, True), ("w", tokens, 0, 0.0, True)]
    decision = Decision("1", 0.0, "kvaware")
    decision.chosen, decision.candidates = "v", candidates
    facts = RequestFacts(CHAIN, prompt, 64.0, b"")
    if sizes:
        facts.blocks = Blocks(sizes)
    assert known_elsewhere(decision, facts) == known


def test_later_placement_doubles_nothing(prompts: PeerPrompts) -> None:
    request = own(CHAIN, "v")
    prompts.placed(request, 100.0)
    prompts.sent("w", CHAIN, True, 100.1 + peer_prompts.DOUBLED_S)
    assert prompts.take_doubled(request) == 0


def test_memory_is_bounded(prompts: PeerPrompts, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SENT_KEPT", "_DOUBLED_KEPT"):
        monkeypatch.setattr(peer_prompts, name, 8)
    for number in range(100):
        chain = array("Q", [1, number])
        prompts.placed(own(chain, "v"), 100.0)
        prompts.sent("w", chain, True, 100.0)
    assert len(prompts._sent) == 8
    assert len(prompts._doubled) <= 8
    prompts.placed(own(CHAIN, "v"), 200.0)
    assert len(prompts._placed) == 1
