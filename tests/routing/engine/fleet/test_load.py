"""Load accounting returns to zero, and the worker order stays correct."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from routing.engine.config import WorkerConfig, parse
from routing.engine.fleet.load import RequestCharge, WorkersByLoad
from routing.engine.fleet.workers import SMALL_FLEET, Worker, WorkerTable
from routing.engine.policies import cost


def config(count: int) -> tuple[WorkerConfig, ...]:
    items = [{"url": f"http://127.0.0.1:{8000 + index}"} for index in range(count)]
    return parse({"listen": "127.0.0.1:0", "workers": items}, Path()).workers


def workers(count: int) -> list[Worker]:
    found = [Worker(item) for item in config(count)]
    for slot, worker in enumerate(found):
        worker.slot = slot
    return found


def table(count: int) -> WorkerTable:
    found = WorkerTable(lambda _worker, _what: None)
    for worker in workers(count):
        worker.up = True
        found.add(worker)
    found.refresh()
    return found


def test_prompt_counts_until_the_first_byte_and_stream_until_its_end() -> None:
    (worker,) = workers(1)
    charge = RequestCharge(worker, 500)
    assert (worker.in_flight, worker.backlog, worker.decoding) == (1, 500, 0)
    assert worker.load == cost.load(500, 1, 0)
    charge.answered()
    assert (worker.in_flight, worker.backlog, worker.decoding) == (1, 0, 1)
    assert worker.load == cost.load(0, 0, 1) > 0
    charge.end()
    assert (worker.in_flight, worker.backlog, worker.decoding, worker.load) == (0, 0, 0, 0)


def test_request_that_fails_before_its_first_byte_leaves_no_load() -> None:
    (worker,) = workers(1)
    RequestCharge(worker, 500).end()
    assert (worker.in_flight, worker.backlog, worker.decoding, worker.load) == (0, 0, 0, 0)


def test_prompts_in_flight_take_room_until_their_end_once_for_a_shared_one() -> None:
    (worker,) = workers(1)
    worker.cache_tokens = 1000
    document, other = list(range(1, 9)), list(range(11, 19))
    charges = [RequestCharge(worker, 0, 300, [*document, question]) for question in (100, 200)]
    assert worker.spare == cost.spare(1000, 301) == 199  # each has a last block of its own
    assert {100, 200} < worker.prompts.keys()
    charges.append(RequestCharge(worker, 0, 100, other))
    charges[0].answered()
    charges[0].end()
    assert worker.spare == 100
    for charge in charges[1:]:
        charge.end()
    assert (worker.spare, worker.occupied, worker.prompts) == (500, 0, {})


def test_room_is_unlimited_where_the_size_of_the_cache_is_unknown() -> None:
    (worker,) = workers(1)
    RequestCharge(worker, 0, 10**9, [1, 2, 3])
    assert cost.shortage(worker.spare, 10**6) == 0


@given(st.lists(st.tuples(st.integers(0, 39), st.integers(0, 3), st.integers(0, 900)), max_size=80))
def test_order_is_correct_after_every_change(steps: list[tuple[int, int, int]]) -> None:
    fleet = workers(40)
    order = WorkersByLoad(fleet)
    open_charges: list[RequestCharge] = []
    for at, (index, what, tokens) in enumerate(steps):
        if what < 2 or not open_charges:
            fleet[index].last_pick = at + 1
            open_charges.append(RequestCharge(fleet[index], tokens))
        elif what == 2:
            open_charges.pop(index % len(open_charges)).end()
        elif not (charge := open_charges[index % len(open_charges)])._decoding:
            charge.answered()
        assert [entry[3].id for entry in order.entries] == [
            worker.id for worker in sorted(fleet, key=lambda w: (w.load, w.last_pick))
        ]
        assert order.total == sum(worker.load for worker in fleet)


def test_only_large_fleets_are_kept_sorted() -> None:
    small = table(SMALL_FLEET)
    assert small.fleet.order is None
    large = table(SMALL_FLEET + 1)
    assert large.fleet.order is not None
    ordered = large.fleet.order.entries
    assert len(ordered) == SMALL_FLEET + 1
    first = ordered[0][3]
    RequestCharge(large.workers[first.id], 10)
    assert ordered[-1][3] is first
    assert large.fleet.least_loaded() is ordered[0][3] is not first


def test_removed_worker_can_finish_its_requests() -> None:
    known = table(SMALL_FLEET + 2)
    worker = next(iter(known.workers.values()))
    charge = RequestCharge(worker, 10)
    worker.order_draining = True
    known.refresh()
    assert known.fleet.order is not None
    assert worker not in [entry[3] for entry in known.fleet.order.entries]
    charge.answered()
    known.remove(worker.id)
    charge.end()
    assert worker.load == 0


def test_list_order_gives_no_preference() -> None:
    firsts = {table(8).fleet.least_loaded().id for _ in range(40)}
    assert len(firsts) > 3
