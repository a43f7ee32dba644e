"""Sampled hit curve: close to exact LRU stack distances, with bounded memory."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable

import pytest

from cachetier.engine.memory.hit_curve import HitCurve

SIZES = (50_000, 200_000, 800_000, 3_200_000)
Load = list[tuple[bytes, int]]


def exact(load: Load, capacity: int) -> float:
    """Hits of an LRU cache of that many bytes."""
    held: OrderedDict[bytes, int] = OrderedDict()
    used = hits = 0
    for key, cost in load:
        if key in held:
            hits += 1
            held.move_to_end(key)
            continue
        held[key] = cost
        used += cost
        while used > capacity:
            used -= held.popitem(last=False)[1]
    return hits / len(load)


def fed(load: Load, max_samples: int) -> HitCurve:
    curve = HitCurve(max_samples)
    known = set()
    for key, cost in load:
        curve.record_lookup(key, cost if key in known else None)
        if key not in known:
            curve.stored(key, cost)
            known.add(key)
    return curve


def skewed(chance: random.Random) -> Load:
    keys = [int(chance.paretovariate(0.2)) % 20_000 for _ in range(40_000)]
    return [(b"%d" % key, 100 + key * 7919 % 400) for key in keys]


def looping(chance: random.Random) -> Load:
    """All or nothing: a curve with a step."""
    return [(b"%d" % (at % 3000), 200) for at in range(40_000)]


def chatting(chance: random.Random) -> Load:
    """Each turn looks up all blocks of its conversation again, and a few more."""
    turns = [chance.randrange(600) for _ in range(3500)]
    length: dict[int, int] = {}
    load: Load = []
    for one in turns:
        length[one] = min(length.get(one, 0) + 2, 20)
        load.extend((b"%d.%d" % (one, at), 150) for at in range(length[one]))
    return load


LOADS = [skewed, looping, chatting]


def names_without_the_process(load: Load, seed: int) -> Load:
    """Python's own hash of bytes differs from run to run, and so would what is sampled."""
    names: dict[bytes, bytes] = {}
    chance = random.Random(seed)
    for key, _ in load:
        if key not in names:
            names[key] = Hashed.of(key, chance.getrandbits(60))
    return [(names[key], cost) for key, cost in load]


class Hashed(bytes):
    """Bytes with a hash given to them."""

    number: int

    @classmethod
    def of(cls, text: bytes, number: int) -> Hashed:
        made = cls(text)
        made.number = number
        return made

    def __hash__(self) -> int:
        return self.number


@pytest.mark.parametrize("make", LOADS)
def test_curve_is_exact_within_its_buckets_when_every_key_is_sampled(
    make: Callable[[random.Random], Load],
) -> None:
    load = make(random.Random(1))
    curve = fed(load, 100_000)
    assert curve.sampled_share == 1
    for size in SIZES:
        low, high = exact(load, int(size / 1.1)), exact(load, int(size * 1.1))
        assert low - 0.01 <= curve.hit_ratio(size) <= high + 0.01


@pytest.mark.parametrize("make", LOADS)
def test_sampled_curve_is_close(make: Callable[[random.Random], Load]) -> None:
    """Mean error over runs and sizes below 2.5 points, with 1,000 of 3,000 to 20,000 followed."""
    load = make(random.Random(2))
    errors = []
    for seed in range(3):
        hashed = names_without_the_process(load, seed)
        curve = fed(hashed, 1000)
        assert curve.samples <= 1000
        assert curve.sampled_share < 0.4
        for size in SIZES:
            low, high = exact(load, int(size / 1.1)), exact(load, int(size * 1.1))
            ratio = curve.hit_ratio(size)
            errors.append(max(low - ratio, ratio - high, 0.0))
    assert sum(errors) / len(errors) < 0.025


def test_sample_is_bounded() -> None:
    curve = HitCurve(100)
    chance = random.Random(3)
    for at in range(20_000):
        curve.record_lookup(Hashed.of(b"%d" % at, chance.getrandbits(60)), 1000)
        assert len(curve._places) == curve.samples <= 100
    assert curve.sampled_share < 0.02
    assert curve._sums.size == 400
    assert curve._sums.total == curve.samples * 1000
    assert curve.hit_ratio(1 << 40) < 0.2  # nothing came back; a hundred samples say so roughly


def test_keys_of_one_place_are_sampled_together() -> None:
    curve = HitCurve(100)
    for at in range(2000):
        curve.record_lookup(Hashed.of(b"%d" % at, at << 24 | at % 40 << 18), 1)
        assert -min(curve._places)[0] < curve._threshold
    assert {-place for place, _ in curve._places} == set(range(0, curve._threshold, 1 << 18))
    assert 50 < curve.samples <= 100


def test_old_accesses_weigh_less() -> None:
    curve = HitCurve(64)
    for at in range(40_000):
        curve.record_lookup(b"%d" % (at % 50), 10)
    assert curve.hit_ratio(1000) > 0.95
    assert curve.lookups <= 64 * 64
    for at in range(40_000):
        curve.record_lookup(b"%d" % (1_000_000 + at), 10)
    assert curve.hit_ratio(1000) < 0.4


def test_halving_keeps_the_ratio() -> None:
    curve = HitCurve(400)
    for at in range(60_000):
        curve.record_lookup(b"%d" % (at % 400 if at % 4 else at % 8), 10)  # all are followed
    for size, ratio in ((400, 0.25), (10_000, 1.0)):
        assert curve.hit_ratio(size) == pytest.approx(ratio, abs=0.02)


def test_curve_is_linear_within_a_bucket() -> None:
    curve = HitCurve()
    for key in (b"a", b"b", b"a"):
        curve.record_lookup(key, 1000)
    low, middle, high = (curve.hit_ratio(size) for size in (1950, 2000, 2040))
    assert 0 < low < middle < high <= 1 / 3


def test_value_sizes_are_learned_on_store() -> None:
    """The value's length is unknown at a miss."""
    curve = HitCurve()
    for key in (b"a", b"b"):
        curve.record_lookup(key, None)
        curve.stored(key, 1000)
    curve.record_lookup(b"a", 1000)
    assert curve.hit_ratio(1500) == 0
    assert curve.hit_ratio(2500) == pytest.approx(1 / 3)


def test_knee_is_where_more_memory_stops_paying() -> None:
    load = looping(random.Random(0))  # 600,000 bytes, all or nothing
    curve = fed(load, 100_000)
    knee = curve.knee(500_000)
    assert knee is not None
    assert 550_000 <= knee <= 800_000
    points = curve.points(500_000)
    assert next(point.capacity_bytes for point in points if point.hit_ratio > 0.9) == knee
    assert points[0].capacity_bytes * 256 == points[-1].capacity_bytes
    assert curve.knee(30_000) is None  # still rising at sixteen times that
    assert HitCurve().knee(100) is None


def test_no_access_gives_no_hit_rate() -> None:
    assert HitCurve().hit_ratio(1 << 30) == 0
