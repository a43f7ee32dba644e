"""Causes that KV events tell apart: evictions by tier, stale indexes, blocks on their way."""

from __future__ import annotations

import time
from array import array

import pytest

from routing.engine.kv.match import Blocks, Match
from routing.engine.kv.wire import Tier
from routing.engine.kvaware.request_state import RequestPlacement
from routing.engine.misses.history import Evictions
from routing.engine.misses.ledger import MissLedger
from routing.engine.observe.decisions import Decision
from routing.engine.observe.metrics import Metrics
from routing.engine.policies.base import Pick, RequestFacts
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.prompt.identity import Identity
from tests.routing.engine.harness import routed_request

NAMES = list(range(100, 131))  # 31 blocks of 32 tokens can be cached


class Placed:
    """A prompt of 1000 tokens that the worker computed a minute ago and that comes again."""

    sizes: tuple[int, ...] = (32,)
    tokens = 1000
    took_s = 0.0

    def __init__(self) -> None:
        self.ledger = MissLedger(Metrics("n", "e").registry)
        self.ledger.configure(256, True)
        self.chain = array("Q", range(1, 17))
        self.ledger.history.remember("w", self.chain, time.time() - 60)

    def again(
        self,
        held: Match,
        cached: int = 0,
        guessed: bool = False,
        at: str = "w",
        strategy: str = "kvaware",
        reason: str = "",
    ) -> dict[str, int]:
        decision = Decision("d", time.time() - self.took_s, strategy)
        decision.reason = reason
        decision.status, decision.estimated, decision.counted = 200, False, True
        decision.prompt_tokens = self.tokens
        decision.cached_tokens, decision.chosen, decision.predicted = cached, at, held.tokens
        pick = Pick(RoutingTarget(at), "", 0, [], 0, {at: held}, guessed)
        blocks = Blocks(dict.fromkeys(self.sizes, NAMES))
        exchange = routed_request(
            RequestFacts(self.chain, self.tokens, 62.5, b"", blocks=blocks),
            decision,
            placing=RequestPlacement(pick=pick),
        )
        identity = Identity(exchange.facts, "m")
        self.ledger.arrived(exchange, identity)
        self.ledger.compare(exchange, identity)
        self.ledger.ended(exchange)
        assert decision.misses is not None
        assert sum(decision.misses.tokens.values()) == self.tokens - cached
        self.decision = decision
        return decision.misses.tokens


@pytest.mark.parametrize(
    ("tier", "cause"),
    [(Tier.GPU, "evicted_device"), (Tier.L1, "evicted_l1"), (Tier.L2, "evicted_l2")],
)
def test_tier_and_age_of_an_eviction(tier: Tier, cause: str) -> None:
    placed = Placed()
    placed.ledger.evicted("w", tier, NAMES[10:])
    found = placed.again(Match(320, 0, 0, 0), cached=320)
    assert found == {cause: 672, "below_block": 8}
    assert placed.decision.misses is not None
    assert placed.decision.misses.age_s == pytest.approx(60, abs=5)
    assert placed.decision.misses.evicted_at is not None


def test_removal_at_another_worker_is_not_this_one_s() -> None:
    placed = Placed()
    placed.ledger.evicted("other", Tier.GPU, NAMES)
    assert placed.again(Match(0, 0, 0, 0)) == {"evicted_unknown": 992, "below_block": 8}


def test_removal_at_the_worker_that_had_it_is_found_from_another() -> None:
    placed = Placed()
    placed.ledger.evicted("w", Tier.L1, NAMES)
    assert placed.again(Match(0, 0, 0, 0), at="v") == {"evicted_l1": 992, "below_block": 8}


@pytest.mark.parametrize(("reason", "cause"), [("", "index_stale"), ("pinned", "placed_pinned")])
def test_worker_that_computed_it_but_whose_index_lacks_it(reason: str, cause: str) -> None:
    """Its events are late or lost, or its index is being rebuilt: no removal was reported."""
    placed = Placed()
    found = placed.again(Match(0, 0, 0, 0), at="v", reason=reason)
    assert found == {cause: 992, "below_block": 8}


def test_removal_may_be_forgotten_since_the_prompt_was_used() -> None:
    placed = Placed()
    placed.ledger.evictions = Evictions(keep=10)
    now = time.time()
    for moment in (now - 90, now - 80):  # two full generations, both before its last use
        placed.ledger.evictions.add("w", 0, range(1000, 1011), moment)
    assert placed.again(Match(0, 0, 0, 0), at="v")["index_stale"] == 992
    placed = Placed()
    placed.ledger.evictions = Evictions(keep=10)
    for moment in (now - 30, now - 20):  # removals from before the first of them are forgotten
        placed.ledger.evictions.add("w", 0, range(1000, 1011), moment)
    assert placed.again(Match(0, 0, 0, 0), at="v")["evicted_unknown"] == 992


@pytest.mark.parametrize("strategy", ["roundrobin", "session"])
@pytest.mark.parametrize(
    ("reason", "at", "gone", "cause"),
    [
        ("round_robin", "v", False, "placed_strategy"),
        ("pinned", "v", False, "placed_pinned"),
        ("round_robin", "v", True, "evicted_l1"),
        ("round_robin", "w", False, "evicted_unknown"),
    ],
)
def test_arm_of_a_canary_that_compares_no_caches(
    strategy: str, reason: str, at: str, gone: bool, cause: str
) -> None:
    """Another worker, w, computed the prompt."""
    placed = Placed()
    if gone:
        placed.ledger.evicted("w", Tier.L1, NAMES)
    found = placed.again(Match(0, 0, 0, 0), at=at, strategy=strategy, reason=reason)
    assert found == {cause: 992, "below_block": 8}


def test_blocks_that_events_reported_and_the_engine_lacks() -> None:
    found = Placed().again(Match(320, 64, 128, 0))
    assert found == {
        "index_stale": 384,
        "evicted_l2": 128,
        "evicted_unknown": 480,
        "below_block": 8,
    }


@pytest.mark.parametrize(
    ("ttl_s", "age_s", "cause"),
    [(60, 61, "expired_l2"), (60, 30, "evicted_l2"), (0, 61, "evicted_l2")],
)
def test_blocks_that_l2_dropped_after_their_ttl(ttl_s: int, age_s: float, cause: str) -> None:
    placed = Placed()
    placed.ledger.configure(256, True, ttl_s)
    placed.ledger.stored_in_l2(NAMES, time.time() - age_s)
    found = placed.again(Match(0, 0, 992, 0), at="v")
    assert found == {cause: 992, "below_block": 8}
    assert placed.decision.misses is not None
    assert placed.decision.misses.age_s is not None
    placed.ledger.stored_in_l2(NAMES, 0.0)  # by the worker that computed them again
    assert placed.again(Match(0, 0, 992, 0), at="v")["evicted_l2"] == 992
    placed.ledger.stored_in_l2(NAMES, time.time() - age_s)  # an event that is replayed
    assert placed.again(Match(0, 0, 992, 0), at="v")[cause] == 992


def test_block_that_the_request_itself_stored_again_had_expired() -> None:
    placed = Placed()
    placed.ledger.configure(256, True, 60)
    placed.ledger.stored_in_l2(NAMES, time.time() - 70)
    placed.took_s = 5.0
    placed.ledger.stored_in_l2(NAMES, time.time() - 1)
    assert placed.again(Match(0, 0, 992, 0), at="v")["expired_l2"] == 992
    placed.took_s = 0.0
    assert placed.again(Match(0, 0, 992, 0), at="v")["evicted_l2"] == 992


def test_blocks_still_being_computed() -> None:
    placed = Placed()
    placed.ledger.evicted("w", Tier.GPU, NAMES)
    expected = Match(640, 0, 0, 0)
    assert placed.again(expected, guessed=True)["evicted_device"] == 992, "answered before"
    placed.chain = array("Q", range(2001, 2017))
    assert placed.again(expected, guessed=True)["in_flight"] == 640


def test_block_size_of_the_chosen_worker_decides() -> None:
    placed = Placed()
    placed.sizes = (32, 64)
    placed.ledger.learn_block_size("w", 64)
    # 1000 tokens have 15 whole blocks of 64; another worker's blocks of 32 would reach up to 992.
    assert placed.again(Match(960, 0, 0, 0), cached=960) == {"below_block": 40}
    placed.ledger.learn_block_size("w", 32)
    assert placed.again(Match(992, 0, 0, 0), cached=992) == {"below_block": 8}
    placed.ledger.learn_block_size("w", 7)  # not of its events
    assert placed.again(Match(992, 0, 0, 0), cached=992) == {"below_block": 8}


def test_prompt_that_grew_by_less_than_a_text_block() -> None:
    placed = Placed()
    placed.tokens = 1050
    assert placed.again(Match(992, 0, 0, 0), cached=992) == {"first_seen": 32, "below_block": 26}
    placed.ledger.evicted("w", Tier.GPU, NAMES[30:])
    found = placed.again(Match(960, 0, 0, 0), cached=960)
    assert found == {"evicted_device": 64, "below_block": 26}, "its end was evicted"


def test_cache_that_the_worker_cleared() -> None:
    placed = Placed()
    placed.ledger.cleared("w")
    assert placed.again(Match(0, 0, 0, 0)) == {"lost_reset": 992, "below_block": 8}
