"""Peers' batches applied to load, placements and circuits of a router."""

from __future__ import annotations

from array import array

import pytest

from routing.engine.access.key_usage import KeyUse
from routing.engine.config import Address, WorkerConfig
from routing.engine.fleet.load import RequestCharge
from routing.engine.fleet.workers import SMALL_FLEET, Worker, WorkerTable
from routing.engine.kv.match import Blocks
from routing.engine.peers import messages
from routing.engine.peers.messages import MAX_TIMES, Batch, MessageError
from routing.engine.peers.outbox import Outbox
from routing.engine.peers.view import SILENCE_S, PeerView
from routing.engine.policies.base import RequestFacts, RoutingPolicy
from routing.engine.policies.canary import prefix_memory
from routing.engine.policies.kvaware import KvAware
from routing.engine.policies.prefixaware import MAX_SHARE, MIN_SHARE, PrefixAware

KEY = b"k" * 32


class State:
    """A router's table and policy with its outbox and view."""

    def __init__(self, number: int, policy: RoutingPolicy | None = None, count: int = 4) -> None:
        self.policy = policy or PrefixAware(1000)
        self.table = WorkerTable(lambda _worker, _what: None)
        for index in range(count):
            worker = Worker(WorkerConfig(f"w{index}", "", Address("", 0)))
            worker.up = True
            self.table.add(worker)
        self.table.refresh()
        self.picks = 0
        self.times: list[tuple[str, int, float]] = []
        name = f"{number:016x}"
        self.outbox = Outbox(name, self.table)
        self.use = KeyUse(name)
        self.use.configure(frozenset({"a"}))
        self.view = PeerView(self, name, self.use)

    def picked(self, worker: Worker) -> None:
        self.picks += 1
        worker.last_pick = self.picks

    def learn_pace(self, worker_id: str, work: int, ttft_s: float) -> None:
        self.times.append((worker_id, work, ttft_s))

    def worker(self, index: int) -> Worker:
        return self.table.workers[f"w{index}"]

    def batch(self, complete: bool = False, leaving: bool = False) -> Batch:
        found = self.outbox.batch(complete=complete, leaving=leaving)
        assert found is not None
        return found


@pytest.fixture
def pair() -> tuple[State, State]:
    return State(1), State(2)


def loads(state: State) -> list[tuple[float, int]]:
    return [(worker.load, worker.in_flight) for worker in state.table.workers.values()]


def facts(*chain: int) -> RequestFacts:
    return RequestFacts(array("Q", chain), 64 * len(chain), 64.0, b"")


def test_load_of_a_peer_counts_until_its_requests_end(pair):
    one, two = pair
    charges = [RequestCharge(one.worker(0), 500), RequestCharge(one.worker(1), 70)]
    charges[0].answered()
    two.view.apply(one.batch(), 0.0)
    assert loads(two) == loads(one) != loads(State(3))
    assert two.worker(0).own_in_flight == 0
    assert two.outbox.batch() is None  # a peer's load is not published again
    for charge in charges:
        charge.end()
    two.view.apply(one.batch(), 0.1)
    assert loads(two) == loads(State(3))


def test_answer_times_of_a_peer_are_learned_once_and_not_passed_on(pair):
    one, two = pair
    one.outbox.timed("w0", 500, 0.25)
    one.outbox.timed("gone", 500, 0.25)
    two.view.apply(one.batch(), 0.0)
    two.view.apply(one.batch(complete=True), 0.1)
    assert two.times == [("w0", 500, 0.25)]
    assert two.outbox.batch() is None


def test_more_answer_times_than_fit_are_dropped(pair):
    one, two = pair
    for _ in range(MAX_TIMES + 5):
        one.outbox.timed("w0", 500, 0.25)
    two.view.apply(messages.decode(messages.encode(one.batch(), KEY), KEY), 0.0)
    assert len(two.times) == MAX_TIMES


DOCUMENT = tuple(range(1, 9))


def room(state: State, index: int = 0) -> float:
    return state.worker(index).spare


@pytest.fixture
def sized(pair: tuple[State, State]) -> tuple[State, State]:
    for state in pair:
        for worker in state.table.workers.values():
            worker.cache_tokens, worker.spare = 1000, 500
    return pair


def test_prompt_in_flight_at_a_peer_takes_room_here_until_it_ends(sized):
    one, two = sized
    charge = RequestCharge(one.worker(0), 0, 300, DOCUMENT)
    two.view.apply(one.batch(), 0.0)
    assert (room(one), room(two), room(two, 1)) == (200, 200, 500)
    assert two.outbox.batch() is None  # a peer's prompt is not published again
    assert not two.batch(complete=True).prompts
    charge.end()
    two.view.apply(one.batch(), 0.0)
    assert (room(one), room(two)) == (500, 500)
    assert not two.worker(0).prompts


def test_prompt_that_several_routers_sent_takes_room_once(sized):
    one, two = sized
    charges = [RequestCharge(state.worker(0), 0, 300, DOCUMENT) for state in (one, one, two)]
    two.view.apply(one.batch(), 0.0)
    one.view.apply(two.batch(), 0.0)
    assert room(one) == room(two) == 200
    charges[2].end()
    one.view.apply(two.batch(), 0.0)
    charges[0].end()
    two.view.apply(one.batch(), 0.0)
    assert room(one) == room(two) == 200
    charges[1].end()
    two.view.apply(one.batch(), 0.0)
    assert room(one) == room(two) == 500


def test_heartbeat_corrects_lost_prompts(sized):
    one, two = sized
    charge = RequestCharge(one.worker(0), 0, 300, DOCUMENT)
    two.view.apply(one.batch(), 0.0)
    charge.end()
    RequestCharge(one.worker(1), 0, 200, DOCUMENT)
    one.batch()  # lost
    assert (room(two), room(two, 1)) == (200, 500)
    two.view.apply(one.batch(complete=True), 0.1)
    assert (room(two), room(two, 1)) == (500, 300)
    worker = Worker(WorkerConfig("w1", "", Address("", 0)))  # replaced under its name
    worker.cache_tokens = 1000
    two.table.remove("w1")
    two.table.add(worker)
    two.view.apply(one.batch(complete=True), 0.2)
    assert room(two, 1) == 300


def test_prompts_of_a_lost_peer_take_no_room(sized):
    one, two = sized
    RequestCharge(one.worker(0), 0, 300, DOCUMENT)
    two.view.apply(one.batch(), 0.0)
    two.view.tick(SILENCE_S + 0.01)
    assert room(two) == 500


def test_prompts_are_bounded_and_sent_only_where_their_room_is_compared(pair, monkeypatch):
    monkeypatch.setattr("routing.engine.peers.messages.MAX_PROMPTS", 3)
    one, _ = pair
    RequestCharge(one.worker(0), 0, 300, DOCUMENT)
    assert not one.batch().prompts  # cache size unknown
    one.worker(0).cache_tokens = 1000
    for number in range(10, 15):
        RequestCharge(one.worker(0), 0, 300, (number, number))
    (found,) = one.batch(complete=True).prompts
    assert found.tokens == [299, 1, 300]
    large = State(3, count=SMALL_FLEET + 1)
    large.worker(0).cache_tokens = 1000
    RequestCharge(large.worker(0), 0, 300, DOCUMENT)
    assert not large.batch(complete=True).prompts


def test_only_first_and_last_request_with_a_prompt_are_published(sized):
    one, _ = sized
    charges = [RequestCharge(one.worker(0), 0, 300, DOCUMENT) for _ in range(3)]
    charges.pop().end()
    assert [sorted(item.tokens) for item in one.batch().prompts] == [[1, 299]]
    for charge in charges:
        charge.end()
    assert [item.tokens for item in one.batch().prompts] == [[0, 0]]
    RequestCharge(one.worker(0), 0, 300, DOCUMENT).end()
    assert not one.worker(0).changed_prompts  # not kept by a router without peers


def test_ties_go_to_the_worker_that_no_router_picked_recently(pair):
    one, two = pair
    for index in range(3):
        RequestCharge(one.worker(index), 0).end()
        charge = RequestCharge(one.worker(index), 0)
        two.view.apply(one.batch(), 0.0)
        charge.end()
        two.view.apply(one.batch(), 0.0)
    assert two.table.fleet.least_loaded().id == "w3"
    two.picked(two.worker(3))
    assert two.table.fleet.least_loaded().id == "w0"


def test_heartbeat_corrects_a_lost_batch(pair):
    one, two = pair
    charge = RequestCharge(one.worker(0), 500)
    two.view.apply(one.batch(), 0.0)
    charge.end()
    one.batch()  # lost
    RequestCharge(one.worker(1), 30)
    one.batch()  # lost
    two.view.apply(one.batch(complete=True), 0.1)
    assert loads(two) == loads(one)


def test_silent_or_leaving_peer_contributes_nothing(pair):
    one, two = pair
    RequestCharge(one.worker(0), 500)
    two.view.apply(one.batch(), 0.0)
    assert not two.view.tick(SILENCE_S)
    assert two.view.tick(SILENCE_S + 0.01)
    assert loads(two) == loads(State(3))
    two.view.apply(one.batch(complete=True), 2.0)
    assert loads(two) == loads(one)
    two.view.apply(one.batch(complete=True, leaving=True), 2.0)
    assert not two.view.peers
    assert loads(two) == loads(State(3))


def test_budget_of_a_peer_is_used_here_and_its_reservations_end_with_it(pair):
    first, second = pair
    batch = first.outbox.batch(budgets=[("a", 30, 50, 70), ("unknown", 1, 1, 1)], age_s=90)
    second.view.apply(batch, 10.0, age_s=90.0)
    shared = second.use.of("a").shared
    assert (shared.spent, shared.reserved) == (30, 50)
    second.view.tick(10.1 + SILENCE_S)
    assert (shared.spent, shared.reserved) == (30, 0)
    assert "unknown" not in second.use.show()["keys"]


def test_repeated_batch_is_rejected(pair):
    one, two = pair
    RequestCharge(one.worker(0), 500)
    batch = one.batch()
    two.view.apply(batch, 0.0)
    with pytest.raises(MessageError):
        two.view.apply(batch, 0.1)


def test_placement_of_a_peer_is_a_match_of_every_router(pair):
    one, two = pair
    one.outbox.sent(facts(1, 2, 3), "w2")
    two.view.apply(one.batch(), 0.0)
    pick = two.policy.rank(facts(1, 2, 3, 4), two.table.fleet)
    assert (pick.worker.id, pick.cached_tokens) == ("w2", 192)


def test_placement_of_a_kvaware_peer_dates_the_cache_of_its_worker():
    one, two = State(1, KvAware(4, b"s")), State(2, KvAware(4, b"s"))
    assert isinstance(two.policy, KvAware)
    what = facts(1, 2, 3)
    what.blocks = Blocks({16: [5, 6, 7]})
    one.outbox.sent(what, "w2")
    two.view.apply(one.batch(), 0.0)
    ages = [two.policy.by_prefix.displaced(name, 2 * 64) for name in ("w1", "w2")]
    assert ages[0] == 0 < ages[1]


def test_prompt_sent_again_at_its_end_is_the_youngest_at_a_peer():
    one, two = State(1, PrefixAware(6)), State(2, PrefixAware(6))
    for prompt in ((1, 2, 3), (4, 5, 6), (1, 2, 3)):
        one.outbox.sent(facts(*prompt), "w2")
    one.outbox.sent(facts(7), "w2")  # evicts the end of the oldest
    two.view.apply(one.batch(), 0.0)
    matched = [
        two.policy.rank(facts(*p), two.table.fleet).cached_tokens for p in ((1, 2, 3), (4, 5, 6))
    ]
    assert matched == [192, 128]


@pytest.mark.parametrize("kind", [PrefixAware, lambda blocks: KvAware(blocks, b"s")])
def test_share_of_a_cache_that_a_peer_learned_counts_here(kind):
    one, two = State(1, kind(1000)), State(2, kind(1000))
    for state in (one, two):
        state.policy.set_capacity("w2", 6400)  # 100 blocks of 64 tokens
    what = facts(*range(200))
    for _ in range(2):  # more is remembered than is reported as cached
        one.policy.sent(what, one.worker(2))
        what.tokens = 200 * 64
        one.policy.ended(what, one.worker(2), what.tokens, 0)
    learned = one.policy.share("w2")
    assert MIN_SHARE < learned < MAX_SHARE
    one.outbox.sent(what, "w2", learned)
    two.view.apply(one.batch(), 0.0)
    assert two.policy.share("w2") == learned
    assert prefix_memory(two.policy).sizes() == prefix_memory(one.policy).sizes()
    one.outbox.sent(what, "w2", 0.1)
    two.view.apply(one.batch(), 0.0)
    assert two.policy.share("w2") == MIN_SHARE


def test_placement_with_other_hashes_or_of_an_unknown_worker_is_ignored(pair):
    one, two = pair
    one.outbox.dialect = 1
    one.outbox.sent(facts(1, 2, 3), "w2")
    two.view.apply(one.batch(), 0.0)
    one.outbox.dialect = 0
    one.outbox.sent(facts(1, 2, 3), "elsewhere")
    two.view.apply(one.batch(), 0.0)
    assert two.view.ignored == 2
    assert not two.policy.sizes()


def test_expected_blocks_of_a_peer_end_with_its_request():
    one, two = State(1, KvAware(1000, b"s")), State(2, KvAware(1000, b"s"))
    assert isinstance(one.policy, KvAware)
    assert isinstance(two.policy, KvAware)
    chains = {16: [5, 6, 7]}
    guesses = [one.policy.pending.sent("w1", chains) for _ in range(3)]
    for guess in guesses:
        one.outbox.expected(guess)
    two.view.apply(one.batch(), 0.0)
    assert two.policy.pending.matched(chains) == {"w1": 48}
    one.outbox.failed(guesses[0])
    one.outbox.answered(guesses[1])
    two.view.apply(one.batch(), 0.0)
    two.policy.pending.tick(60.0)
    assert two.policy.pending.matched(chains) == {"w1": 48}
    two.view.clear()
    assert not two.policy.pending.matched(chains)


def test_circuit_opened_by_a_peer_ejects_the_worker_here(pair):
    one, two = pair
    one.outbox.circuit("w0", True)
    two.view.apply(one.batch(), 0.0)
    assert "w0" not in [worker.id for worker in two.table.eligible]
    one.outbox.circuit("w0", False)
    two.view.apply(one.batch(), 0.0)
    assert len(two.table.eligible) == 4


def test_peer_that_lost_its_network_ejects_at_most_half_of_the_fleet(pair):
    one, two = pair
    for index in range(4):
        one.outbox.circuit(f"w{index}", True)
    two.view.apply(one.batch(), 0.0)
    assert len(two.table.eligible) == 2


def test_placements_wait_while_there_is_no_store_and_are_bounded(monkeypatch, pair):
    monkeypatch.setattr("routing.engine.peers.outbox.MAX_HELD", 300)
    one, two = pair
    for number in range(400):
        one.outbox.sent(facts(number), "w0")
    assert (one.outbox.held, one.outbox.dropped) == (300, 100)
    while one.outbox.held:
        two.view.apply(one.batch(), 0.0)
    assert two.policy.sizes() == {"w0": 300}


def test_memory_of_a_router_makes_another_one_warm(pair):
    one, two = pair
    for chain in ((1, 2, 3), (1, 2, 9), (4,), (1, 2, 3, 5)):
        one.policy.sent(facts(*chain), one.worker(1))
    found = one.policy.memory("w1", 1000)
    assert [list(chain) for _, chain in found] == [[1, 2, 9], [4], [1, 2, 3, 5]]
    two.view.remember(one.outbox.memory(("w1", size, chain) for size, chain in found))
    assert two.policy.sizes() == one.policy.sizes()
    assert [list(chain) for _, chain in one.policy.memory("w1", 4)] == [[1, 2, 3, 5]]
