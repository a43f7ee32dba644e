"""kvaware strategy as a pure object: held blocks, blocks in transit, and costs."""

from __future__ import annotations

import pytest

from routing.engine.kv.match import Blocks
from routing.engine.kv.progress import GRACE_S, ExpectedBlocks
from routing.engine.kvaware.prediction_accuracy import PredictionAccuracy
from routing.engine.policies import base
from routing.engine.policies.base import Fleet, Pick, RequestFacts
from routing.engine.policies.kvaware import L1_SHARE, L2_SHARE, KvAware, LoadPrices
from routing.engine.policies.load_order import RoutingTarget
from tests.routing.engine.fleet.test_load import table
from tests.routing.engine.kv.builders import BLOCK, SECRET, removed, stored
from tests.routing.engine.kv.builders import Fleet as Events
from tests.routing.engine.policies.test_base import targets

PROMPT = list(range(1, 10 * BLOCK + 2))
"""Ten blocks a cache can serve, and the token which is always computed."""


class Room:
    """A policy, what feeds its index, and workers to choose from."""

    def __init__(self, workers: int = 3) -> None:
        self.policy = KvAware(1000, SECRET)
        self.events = Events()
        self.policy.index = self.events.index
        self.workers = targets(workers)

    def facts(self, tokens: list[int] | None = None, salt: str = "") -> RequestFacts:
        tokens = PROMPT if tokens is None else tokens
        found = RequestFacts([7, 8, 9], len(tokens), 64, b"")
        names = self.events.names(tokens, salt=salt)
        found.blocks = Blocks({BLOCK: names[: (len(tokens) - 1) // BLOCK]})
        return found

    def pick(
        self, facts: RequestFacts | None = None, others: list[RoutingTarget] | None = None
    ) -> Pick:
        others = others or []
        eligible = [worker for worker in self.workers if worker not in others]
        return self.policy.rank(facts or self.facts(), Fleet(eligible, others))


@pytest.fixture
def room() -> Room:
    return Room()


def test_prompt_goes_to_its_holder_with_the_matched_tokens(room: Room) -> None:
    room.events.report("w1", stored(PROMPT, 0, 4))
    room.events.report("w2", stored(PROMPT, 0, 8))
    pick = room.pick()
    assert (pick.worker.id, pick.reason, pick.cached_tokens) == ("w2", base.KV_HIT, 8 * BLOCK)
    assert {item[0]: item[1] for item in pick.candidates} == {
        "w0": 0,
        "w1": 4 * BLOCK,
        "w2": 8 * BLOCK,
    }
    assert pick.total == 3
    assert not pick.guessed


def test_evicted_blocks_no_longer_count(room: Room) -> None:
    room.events.report("w1", stored(PROMPT))
    facts = room.facts()
    for _ in range(3):
        room.policy.sent(facts, room.workers[1])
    assert room.pick().worker.id == "w1"
    for end in range(10, 0, -1):
        room.events.report("w1", removed(PROMPT[: end * BLOCK]))
    pick = room.pick()
    assert (pick.cached_tokens, pick.reason) == (0, base.NO_MATCH)
    # Without events, the record of sent prompts still selects w1.
    unread = room.facts()
    unread.blocks = None
    assert room.policy.rank(unread, Fleet(room.workers)).worker.id == "w1"


def test_without_tokens_the_prefix_strategy_decides_with_its_reason(room: Room) -> None:
    room.events.report("w1", stored(PROMPT))
    facts = room.facts()
    facts.blocks = None
    room.policy.sent(facts, room.workers[2])
    pick = room.pick(facts)
    assert (pick.worker.id, pick.reason, pick.tiers) == ("w2", base.PREFIX_HIT, None)


def test_load_counts_against_matched_blocks(room: Room) -> None:
    room.events.report("w1", stored(PROMPT, 0, 2))
    room.workers[1].load = 100_000
    pick = room.pick()
    assert pick.worker.id != "w1"
    assert pick.reason == base.LEAST_LOADED


def test_device_outweighs_host_memory_and_storage(room: Room) -> None:
    room.events.report("w0", stored(PROMPT, medium="STORAGE", ownership="tier"))
    room.events.report("w1", stored(PROMPT, medium="cpu"))
    assert room.pick().worker.id == "w1"
    room.events.report("w2", stored(PROMPT))
    pick = room.pick()
    assert pick.worker.id == "w2"
    assert pick.tiers is not None
    assert pick.tiers["w1"].l1 == 10 * BLOCK
    room.workers[2].load = 100_000
    assert room.pick().worker.id == "w1"


def test_burst_of_one_new_prompt_stays_together_until_events_arrive(room: Room) -> None:
    first = room.pick()
    facts = room.facts()
    assert facts.blocks is not None
    guess = room.policy.pending.sent(first.worker.id, facts.blocks.chains)
    again = room.pick()
    assert again.worker is first.worker
    assert (again.cached_tokens, again.guessed) == (10 * BLOCK, True)
    room.policy.pending.failed(guess)
    assert room.pick().cached_tokens == 0


def test_unreliable_index_is_not_used(room: Room) -> None:
    room.events.report("w1", stored(PROMPT))
    room.policy.believed = lambda worker: worker != "w1"
    assert room.pick().cached_tokens == 0


def test_match_held_only_by_a_lost_worker_is_named(room: Room) -> None:
    room.events.report("w1", stored(PROMPT))
    pick = room.pick(others=[room.workers[1]])
    assert pick.reason == base.UNHEALTHY
    assert ("w1", 10 * BLOCK) in [(item[0], item[1]) for item in pick.candidates]


def test_large_fleets_are_ranked_alike() -> None:
    """As the table does it for large fleets, with an order by load."""
    room = Room()
    room.events.report("127.0.0.1:8007", stored(PROMPT))
    fleet = table(64).fleet
    assert fleet.order is not None
    pick = room.policy.rank(room.facts(), fleet)
    assert (pick.worker.id, pick.reason) == ("127.0.0.1:8007", base.KV_HIT)


def test_ranking_changes_nothing(room: Room) -> None:
    room.events.report("w1", stored(PROMPT))
    before = (room.policy.sizes(), len(room.policy.pending), room.pick().cached_tokens)
    assert (room.policy.sizes(), len(room.policy.pending), room.pick().cached_tokens) == before


# -- what is on its way


def test_estimate_expires_shortly_after_the_first_byte() -> None:
    pending = ExpectedBlocks()
    chains = {16: [1, 2, 3]}
    guess = pending.sent("a", chains)
    pending.answered(guess, 100.0)
    pending.tick(100.0 + GRACE_S - 0.1)
    assert pending.matched({16: [1, 2, 9]}) == {"a": 32}
    pending.tick(100.0 + GRACE_S)
    assert pending.matched(chains) == {}
    assert len(pending) == 0


def test_estimates_are_counted_separately() -> None:
    pending = ExpectedBlocks()
    one, two = pending.sent("a", {16: [1, 2]}), pending.sent("a", {16: [1, 2, 3]})
    pending.sent("b", {16: [1]})
    pending.failed(two)
    pending.failed(two)
    assert pending.matched({16: [1, 2, 3]}) == {"a": 32, "b": 16}
    pending.failed(one)
    assert pending.matched({16: [1, 2, 3]}) == {"b": 16}


def test_blocks_that_events_reported_count_only_while_they_are_held() -> None:
    pending = ExpectedBlocks()
    chains = {16: [1, 2, 3, 4]}
    guess = pending.sent("a", chains, reported=32)
    assert len(pending) == 2  # as many as are new
    assert pending.matched(chains, {"a": 32, "b": 48}) == {"a": 64}
    assert pending.matched(chains, {"a": 48}) == {"a": 64}
    assert pending.matched(chains, {"a": 16}) == {}  # the second one was removed
    assert pending.matched(chains) == {}
    pending.failed(guess)
    assert len(pending) == 0


def test_lost_worker_has_no_blocks_in_transit() -> None:
    pending = ExpectedBlocks()
    guess = pending.sent("a", {16: [1, 2]})
    pending.forget("a")
    assert pending.matched({16: [1, 2]}) == {}
    pending.failed(guess)
    assert len(pending) == 0


# -- what it is worth


def test_costs_start_with_defaults_and_follow_measurements() -> None:
    prices = LoadPrices()
    assert prices.saved(100, 0, 0) == 100
    assert prices.saved(0, 100, 0) == int(100 * (1 - L1_SHARE))
    assert prices.saved(0, 0, 100) == int(100 * (1 - L2_SHARE))
    for _ in range(50):
        prices.learn(1000, 0, (0, 0, 0), 1.0)  # a thousandth of a second a token
        prices.learn(1016, 1000, (0, 1000, 0), 0.316)
        prices.learn(1016, 1000, (0, 0, 1000), 0.516)
    assert prices.l1_share == pytest.approx(0.3, abs=0.02)
    assert prices.l2_share == pytest.approx(0.5, abs=0.02)
    assert prices.saved(0, 0, 1000) < prices.saved(0, 1000, 0) < prices.saved(1000, 0, 0)


def test_loading_never_costs_more_than_computing() -> None:
    prices = LoadPrices()
    prices.learn(1000, 0, (0, 0, 0), 1.0)
    for _ in range(50):
        prices.learn(1000, 1000, (0, 0, 1000), 60.0)
    assert prices.l2_share == 1.0
    assert prices.saved(0, 0, 500) == 0


def test_outliers_move_a_cost_little_and_mixed_samples_not_at_all() -> None:
    prices = LoadPrices()
    for _ in range(20):
        prices.learn(1000, 0, (0, 0, 0), 1.0)
    prices.learn(1000, 0, (0, 0, 0), 90.0)
    assert prices.compute.seconds < 0.0013
    prices.learn(1000, 900, (450, 450, 0), 0.5)
    assert prices.l1_share == L1_SHARE


# -- honesty


def test_index_that_overpredicts_is_demoted_until_renewed() -> None:
    meter = PredictionAccuracy()
    verdicts = [meter.observe(1000, 0, 16) for _ in range(20)]
    assert verdicts.count(True) == 1
    assert meter.lying
    meter.renewed()
    assert not meter.lying
    assert not any(meter.observe(1000, 990, 16) for _ in range(20))


def test_index_that_underpredicts_is_rebuilt_but_used() -> None:
    meter = PredictionAccuracy()
    assert any(meter.observe(0, 1000, 16) for _ in range(20))
    assert not meter.lying


def test_occasional_evictions_demote_no_index() -> None:
    meter = PredictionAccuracy()
    assert not any(meter.observe(1000, 0 if number % 5 == 4 else 1000, 16) for number in range(50))


def test_error_of_one_block_is_tolerated() -> None:
    meter = PredictionAccuracy()
    assert not any(meter.observe(64, 32, 32) or meter.observe(32, 64, 32) for _ in range(50))


def test_doubted_worker_is_placed_by_the_prompts_it_was_sent(room: Room) -> None:
    """Its tokens are not those that events of it name; the prompts sent to it are known anyway."""
    room.events.report("w1", stored(PROMPT, 0, 8))
    facts = room.facts()
    room.policy.sent(facts, room.workers[2])
    room.policy.doubted = {"w1", "w2"}
    pick = room.pick(room.facts())
    assert (pick.worker.id, pick.reason) == ("w2", base.PREFIX_HIT)
    room.policy.doubted.clear()
    assert room.pick(room.facts()).worker.id == "w1"
