"""Fair queue: the bound of start-time fair queueing under any arrivals and departures."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from routing.engine.access.fair_queue import FairQueue, Flow, QueuedItem

_FLOWS = 4
_EPS = 1e-6


def always(_flow: Flow) -> bool:
    return True


costs = st.integers(1, 5000)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, _FLOWS - 1), costs),
        st.tuples(st.just("flood"), st.integers(0, _FLOWS - 1), costs),
        st.tuples(st.just("leave"), st.integers(0, _FLOWS - 1), costs),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
        st.tuples(st.just("pop many"), st.just(0), st.integers(1, 30)),
    ),
    max_size=80,
)


@given(steps, st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=_FLOWS, max_size=_FLOWS))
def test_flows_differ_by_at_most_one_request_each(
    plan: list[tuple[str, int, int]], weights: list[float]
) -> None:
    queue = FairQueue()
    flows = [Flow(weight) for weight in weights]
    largest = [0.0] * _FLOWS
    got = [0.0] * _FLOWS
    apart: dict[tuple[int, int], tuple[float, float]] = {}  # while both wait: least, most

    def check_order() -> None:
        for a, b in combinations(range(_FLOWS), 2):
            if not flows[a].waiting or not flows[b].waiting:
                apart.pop((a, b), None)
                continue
            now = got[a] - got[b]
            least, most = apart.get((a, b), (now, now))
            apart[a, b] = least, most = min(least, now), max(most, now)
            assert most - least <= largest[a] + largest[b] + _EPS

    def put(index: int, cost: float) -> None:
        largest[index] = max(largest[index], cost / weights[index])
        queue.put(QueuedItem(flows[index], cost))

    def pop() -> None:
        item = queue.pop(always)
        if item is not None:
            index = flows.index(item.flow)
            got[index] += item.cost / weights[index]

    for what, index, number in plan:
        if what == "put":
            put(index, number)
        elif what == "flood":
            for _ in range(20):
                put(index, number)
        elif what == "leave" and flows[index].waiting:
            queue.remove(list(flows[index].waiting)[number % len(flows[index].waiting)])
        for _ in range(number if what == "pop many" else what == "pop"):
            pop()
            check_order()
        check_order()
        assert queue.depth == sum(len(flow.waiting) for flow in flows)
    while queue.depth:
        pop()
        check_order()


@given(st.lists(st.tuples(costs, costs), min_size=1, max_size=60), st.integers(1, 50))
def test_flood_delays_a_new_flow_by_one_request(work: list[tuple[int, int]], heap: int) -> None:
    queue = FairQueue()
    flood, other = Flow(), Flow()
    for cost, _ in work:
        for _ in range(heap):
            queue.put(QueuedItem(flood, cost))
    for _ in range(min(len(work), heap) - 1):
        queue.pop(always)
    item = QueuedItem(other, 1)
    queue.put(item)
    assert item in (queue.pop(always), queue.pop(always))


def test_idle_flows_accumulate_no_credit() -> None:
    queue = FairQueue()
    one, two = Flow(), Flow()
    for _ in range(100):
        queue.passed(QueuedItem(one, 10))
    for flow in (one, two):
        for _ in range(10):
            queue.put(QueuedItem(flow, 10))
    order = [queue.pop(always) for _ in range(20)]
    first = [item.flow is one for item in order[:10] if item is not None]
    assert 4 <= sum(first) <= 6, "neither pays for the time alone nor gains by having been away"


def test_correction_applies_to_queued_requests() -> None:
    queue = FairQueue()
    long, short = Flow(), Flow()
    for _ in range(30):
        queue.put(QueuedItem(long, 100))
        queue.put(QueuedItem(short, 100))
    went = []
    for _ in range(20):
        item = queue.pop(always)
        assert item is not None
        went.append(item.flow)
        if item.flow is long:
            queue.correct(long, 200)  # it always takes three times what it seemed
    assert 4 <= went.count(long) <= 6


def test_correction_delays_the_queued_turn() -> None:
    queue = FairQueue()
    long, short = Flow(), Flow()
    for _ in range(5):
        queue.put(QueuedItem(long, 100))
        queue.put(QueuedItem(short, 100))
    first = queue.pop(always)
    assert first is not None and first.flow is long
    queue.correct(long, 250)
    went = [queue.pop(always) for _ in range(5)]
    assert [item.flow is long for item in went if item is not None] == [
        False, False, False, False, True,
    ]  # fmt: skip


@given(
    st.lists(st.tuples(costs, costs), min_size=20, max_size=60),
    st.sampled_from([0.2, 0.5, 2.0, 7.0]),
    st.integers(1, 60),
)
def test_turns_are_shared_by_weight(work: list[tuple[int, int]], weight: float, turns: int) -> None:
    queue = FairQueue()
    flows = Flow(weight), Flow(1.0)
    for pair in work:
        for flow, cost in zip(flows, pair, strict=True):
            queue.put(QueuedItem(flow, cost))
    got = dict.fromkeys(flows, 0.0)
    while all(flow.waiting for flow in flows) and turns:
        turns -= 1
        item = queue.pop(always)
        assert item is not None
        got[item.flow] += item.cost / item.flow.weight
    most = max(pair[0] for pair in work) / weight + max(pair[1] for pair in work)
    assert abs(got[flows[0]] - got[flows[1]]) <= most + _EPS


def test_unready_flow_blocks_no_other_flow_and_returns() -> None:
    queue = FairQueue()
    stuck, other = Flow(), Flow()
    first = QueuedItem(stuck, 1)
    queue.put(first)
    queue.put(QueuedItem(other, 1000))

    def ready(flow: Flow) -> bool:
        return flow is other

    item = queue.pop(ready)
    assert item is not None and item.flow is other
    assert queue.pop(ready) is None
    assert queue.pop(always) is None, "it is asked again only when somebody says so"
    queue.wake(stuck)
    assert queue.pop(always) is first
    assert queue.depth == 0


@given(steps)
def test_the_heap_holds_each_flow_once(plan: list[tuple[str, int, int]]) -> None:
    queue = FairQueue()
    flows = [Flow() for _ in range(_FLOWS)]
    for what, index, number in plan:
        if what in ("put", "flood"):
            queue.put(QueuedItem(flows[index], number))
            if what == "flood":
                queue.remove(next(iter(flows[index].waiting)))
        elif what.startswith("pop"):
            queue.pop(always)
        assert len(queue._heap) <= _FLOWS
