"""Transfer jobs: reported once, in time, and after the last access to their memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from cachetier.vllm_connector import transfers
from cachetier.vllm_connector.transfers import FinishedJob, Item, TransferPool
from tests.support.waiting import until

Make = Callable[..., TransferPool]
LONG_S = 60.0


def items(count: int, size: int = 10) -> list[Item]:
    return [(b"%d" % i, memoryview(bytearray(size))) for i in range(count)]


def well(part: Sequence[Item], timeout_s: float) -> list[bool]:
    return [True] * len(part)


class Gate:
    """Carrier that blocks until released and records what is in progress."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.carried: list[bytes] = []

    def __call__(self, part: Sequence[Item], timeout_s: float) -> list[bool]:
        self.inside += 1
        assert self.open.wait(60)
        self.inside -= 1
        self.carried += [key for key, _ in part]
        return [True] * len(part)


@pytest.fixture
def make() -> Iterator[Make]:
    pools: list[TransferPool] = []

    def one(
        load: object = well,
        store: object = well,
        lane_of: Callable[[bytes], str] = lambda key: "only",
        **options: int,
    ) -> TransferPool:
        options = {"threads": 3, "part_items": 2, "max_store_bytes": 1000} | options
        pools.append(TransferPool(load, store, lane_of, **options))  # type: ignore[arg-type]
        return pools[-1]

    yield one
    for pool in pools:
        pool.stop()
        assert pool.join(30)


def ended(pool: TransferPool, count: int) -> list[FinishedJob]:
    done: list[FinishedJob] = []

    def enough() -> bool:
        done.extend(pool.finished())
        return len(done) >= count

    until(enough, what=f"{count} jobs")
    assert pool.finished() == []
    return done


def test_many_jobs_are_each_reported_once(make: Make) -> None:
    pool = make(max_store_bytes=1_000_000)
    for number in range(200):
        assert pool.submit(number, items(number % 7 + 1), LONG_S, is_load=number % 2 == 0)
    done = ended(pool, 200)
    assert Counter(one.job_id for one in done) == Counter(range(200))
    for one in done:
        assert one.succeeded == (True,) * (one.job_id % 7 + 1)
        assert one.byte_count == 10 * len(one.succeeded)
        assert one.is_load == (one.job_id % 2 == 0)
    assert pool._store_bytes == 0


def test_failed_parts_are_distinguished(make: Make) -> None:
    def load(part: Sequence[Item], timeout_s: float) -> list[bool]:
        return [key not in (b"1", b"4") for key, _ in part]

    pool = make(load)
    pool.submit(1, items(5), LONG_S, is_load=True)
    (done,) = ended(pool, 1)
    assert done.succeeded == (True, False, True, True, False)
    assert done.byte_count == 30


def test_raising_carrier_fails_only_its_part(make: Make) -> None:
    def load(part: Sequence[Item], timeout_s: float) -> list[bool]:
        if part[0][0] == b"2":
            raise RuntimeError("broken")
        return [True] * len(part)

    pool = make(load)
    pool.submit(1, items(6), LONG_S, is_load=True)
    assert ended(pool, 1)[0].succeeded == (True, True, False, False, True, True)


def test_job_is_reported_after_all_its_parts(make: Make) -> None:
    gate = Gate()

    def load(part: Sequence[Item], timeout_s: float) -> list[bool]:
        return gate(part, timeout_s) if part[0][0] == b"0" else [True] * len(part)

    pool = make(load)
    pool.submit(1, items(6), LONG_S, is_load=True)
    pool.submit(2, items(1)[:0] or [(b"9", memoryview(b"x"))], LONG_S, is_load=True)
    assert [one.job_id for one in ended(pool, 1)] == [2]
    gate.open.set()
    assert [one.job_id for one in ended(pool, 1)] == [1]


def test_job_not_started_by_its_deadline_is_dropped(make: Make) -> None:
    gate = Gate()
    pool = make(gate, threads=1)
    pool.submit(1, items(1), LONG_S, is_load=True)
    until(lambda: gate.inside == 1)
    pool.submit(2, items(3), 0.0, is_load=True)
    gate.open.set()
    done = {one.job_id: one.succeeded for one in ended(pool, 2)}
    assert done == {1: (True,), 2: (False, False, False)}
    assert len(gate.carried) == 1


def test_loads_overtake_queued_stores(make: Make) -> None:
    gate = Gate()
    order: list[str] = []

    def load(part: Sequence[Item], timeout_s: float) -> list[bool]:
        order.append("load")
        return [True] * len(part)

    def store(part: Sequence[Item], timeout_s: float) -> list[bool]:
        gate(part, timeout_s)
        order.append("store")
        return [True] * len(part)

    pool = make(load, store, threads=1, part_items=1)
    pool.submit(1, items(3), LONG_S, is_load=False)
    until(lambda: gate.inside == 1)
    pool.submit(2, items(1), LONG_S, is_load=True)
    gate.open.set()
    ended(pool, 2)
    assert order == ["store", "load", "store", "store"]


def test_excess_stores_are_rejected_at_once_and_loads_never(make: Make) -> None:
    gate = Gate()
    pool = make(store=gate, threads=1, max_store_bytes=100)
    assert pool.submit(1, items(1, 100), LONG_S, is_load=False)
    assert not pool.submit(2, items(1, 1), LONG_S, is_load=False)
    assert [(one.job_id, one.succeeded) for one in pool.finished()] == [(2, (False,))]
    assert pool.submit(3, items(1, 5000), LONG_S, is_load=True)
    gate.open.set()
    ended(pool, 2)
    assert pool.submit(4, items(1, 100), LONG_S, is_load=False)
    ended(pool, 1)


def test_empty_job_is_reported(make: Make) -> None:
    pool = make()
    assert pool.submit(1, [], LONG_S, is_load=True)
    assert ended(pool, 1)[0].succeeded == ()


def test_draining_waits_for_every_job(make: Make) -> None:
    gate = Gate()
    pool = make(gate)
    pool.submit(1, items(5), LONG_S, is_load=True)
    drained = threading.Event()

    def drain() -> None:
        pool.drain()
        drained.set()

    threading.Thread(target=drain, daemon=True).start()
    until(lambda: gate.inside == 3)
    assert not drained.is_set()
    gate.open.set()
    assert drained.wait(60)
    assert len(pool.finished()) == 1


def test_stopping_reports_queued_jobs_and_accepts_none(make: Make) -> None:
    gate = Gate()
    pool = make(gate, threads=1)
    pool.submit(1, items(1), LONG_S, is_load=True)
    until(lambda: gate.inside == 1)
    pool.submit(2, items(4), LONG_S, is_load=True)
    pool.stop()
    assert not pool.join(0.01), "a thread is still inside"
    assert not pool.submit(3, items(1), LONG_S, is_load=True)
    gate.open.set()
    assert pool.join(30)
    done = {one.job_id: any(one.succeeded) for one in pool.finished()}
    assert done == {1: True, 2: False, 3: False}


# -- lanes: one a node of L2 -------------------------------------------------------------------
def last_digit(key: bytes) -> str:
    return key[-1:].decode()


def test_silent_node_blocks_only_its_blocks(make: Make) -> None:
    gate = Gate()

    def load(part: Sequence[Item], timeout_s: float) -> list[bool]:
        return gate(part, timeout_s) if part[0][0].endswith(b"7") else [True] * len(part)

    pool = make(load, lane_of=last_digit, threads=2, part_items=1)
    stuck = [(b"%d7" % i, memoryview(bytearray(1))) for i in range(20)]
    pool.submit(1, stuck, LONG_S, is_load=True)
    until(lambda: gate.inside == 2, what="every thread of the silent node busy")
    for job in range(2, 8):
        pool.submit(job, [(b"%d" % i, memoryview(b"x")) for i in range(7)], LONG_S, is_load=True)
    assert {job.job_id for job in ended(pool, 6)} == set(range(2, 8))
    gate.open.set()
    (last,) = ended(pool, 1)
    assert last.succeeded == (True,) * 20


def test_part_belongs_to_one_node_and_results_keep_the_job_order(make: Make) -> None:
    seen: list[list[bytes]] = []

    def load(part: Sequence[Item], timeout_s: float) -> list[bool]:
        seen.append([key for key, _ in part])
        return [not key.startswith(b"1") for key, _ in part]

    pool = make(load, lane_of=last_digit, part_items=4)
    keys = [b"10", b"21", b"30", b"11", b"20", b"31"]
    pool.submit(1, [(key, memoryview(b"xx")) for key in keys], LONG_S, is_load=True)
    (job,) = ended(pool, 1)
    assert job.succeeded == tuple(not key.startswith(b"1") for key in keys)
    assert job.byte_count == 8
    assert sorted(seen) == [[b"10", b"30", b"20"], [b"21", b"11", b"31"]]


def test_threads_are_started_on_demand_and_stopped_when_idle(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "_IDLE_S", 0.01)
    pool = make(lane_of=lambda key: key.decode())
    assert not pool._threads
    pool.submit(1, items(40, 1), LONG_S, is_load=True)
    (job,) = ended(pool, 1)
    assert all(job.succeeded)
    until(lambda: not pool._threads and not pool._lanes, what="idle threads and lanes gone")
    pool.submit(2, items(3, 1), LONG_S, is_load=True)
    assert ended(pool, 1)[0].succeeded == (True,) * 3


def test_short_carrier_result_fails_the_rest(make: Make) -> None:
    pool = make(lambda part, timeout_s: [True])
    pool.submit(1, items(2), LONG_S, is_load=True)
    assert ended(pool, 1)[0].succeeded == (True, False)
