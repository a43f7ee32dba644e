"""Soak test of some seconds, and tests of its checker."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachetier.engine.config import MIB
from tests.soak import values
from tests.soak.cache_node import Plan, Soak
from tests.soak.worker import Worker, WrongError


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "disk-and-leases"])
def test_no_wrong_value_is_returned(tmp_path: Path, shared: bool) -> None:
    plan = Plan(
        seconds=4,
        memory=32 * MIB,
        disk=64 * MIB if shared else 0,
        shm=f"emberline-test-{os.getpid()}" if shared else "",
        workers=3,
        max_bytes=2 * MIB,
        kill_every_s=1.5,
    )
    found = Soak(plan, tmp_path).run()
    assert not found.wrong, "\n".join(found.lines())
    assert found.kills
    assert found.operations["set"] > 10
    assert found.compared_bytes


def test_checker_detects_every_kind_of_wrong_value() -> None:
    value = values.make(7, 3, 5000)
    assert values.version_of(7, value) == 3
    flipped = bytearray(value)
    flipped[4000] ^= 1
    for wrong in (
        value[:-1],
        value + b"x",
        bytes(flipped),
        values.make(8, 3, 5000),
        b"",
        b"x" * 50,
    ):
        with pytest.raises(ValueError, match=r".+"):
            values.version_of(7, wrong)


def worker() -> Worker:
    return Worker(0, 1, 1, seed=1, max_bytes=1000)


def test_checker_records_the_written_version() -> None:
    one = worker()
    known = one._known[7]
    known.may = {3}
    one._check(7, None, 0.0)
    one._check(7, values.make(7, 3, 100), 0.0)
    with pytest.raises(WrongError, match="version 2"):
        one._check(7, values.make(7, 2, 100), 0.0)
    known.ends_at = 10.0
    one._check(7, values.make(7, 3, 100), 11.0)
    with pytest.raises(WrongError, match="after its end"):
        one._check(7, values.make(7, 3, 100), 13.0)
    known.may.clear()
    with pytest.raises(WrongError, match="deleted"):
        one._check(7, values.make(7, 3, 100), 0.0)


def test_worker_stops_at_the_first_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    one = worker()
    lying = values.make(5, 1, 100)
    one._db = SimpleNamespace(get=lambda key: lying)
    monkeypatch.setattr(Worker, "_KINDS", ((Worker._get_own, 1),))
    one.run()
    assert one.wrong is not None
    assert "the value of key 5" in one.wrong or "deleted" in one.wrong


@pytest.mark.parametrize(
    ("first", "last", "part"),
    [(0, 2, b"abc"), (-2, -1, b"ef"), (4, 99, b"ef"), (-99, -99, b"a"), (2, 1, b"")],
)
def test_parts_equal_those_of_redis(first: int, last: int, part: bytes) -> None:
    assert values.part_is_right(b"abcdef", first, last, part)
