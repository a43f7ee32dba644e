"""Disk tier compared with a dictionary, across clean restarts and kills."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cachetier.engine.disk import tier as tier_module
from cachetier.engine.store import Hold
from cachetier.wire import envelope as block_keys
from tests.support.l2disk import MIB, Disk

CAPACITY = 2 * MIB  # eight segments of 256 KiB


class Clock(SimpleNamespace):
    """Both clocks, moved by the test; the two never agree."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int((self.now + 1_700_000_000) * 1e9)


def key_of(number: int) -> bytes:
    return block_keys.block_key("ab"[number % 2], 0, bytes([number]))


class Model(RuleBasedStateMachine):
    keys = st.integers(0, 11).map(key_of)

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(logging.root.manager, "disable", logging.INFO)
        self.clock = Clock()
        self.patch.setattr(tier_module, "time", self.clock)
        memory = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(prefix="l2-", dir=memory if memory.is_dir() else None))
        self.generation = 0
        self.puts = 0
        self.true: dict[bytes, tuple[bytes, float]] = {}
        self.holds: list[tuple[Hold, bytes]] = []

    @initialize()
    def begin(self) -> None:
        self.disk = Disk(self.folder, CAPACITY)

    @property
    def folder(self) -> Path:
        return self.root / str(self.generation)

    @rule(key=keys, size=st.integers(0, 120_000), ttl_s=st.none() | st.floats(0.1, 20))
    def put(self, key: bytes, size: int, ttl_s: float | None) -> None:
        self.puts += 1
        value = self.puts.to_bytes(4, "big") * (size // 4)
        ends_at = math.inf if ttl_s is None else self.clock.now + ttl_s
        self.disk.tier.drop(key)  # as the store does for a key newly stored
        self.disk.offer(key, value, ends_at)
        self.true[key] = (value, ends_at)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        self._check(key, self.disk.get(key))

    @rule(key=keys)
    def hold(self, key: bytes) -> None:
        found = self.disk.tier.find(key, 0.0)
        if isinstance(found, Hold):
            self.holds.append((found, self.true[key][0]))
        elif found is not None:
            found.release()

    @rule()
    def let_go(self) -> None:
        for hold, value in self.holds:
            assert hold.tobytes() == value
            hold.release()
        self.holds.clear()

    @rule(key=keys)
    def drop(self, key: bytes) -> None:
        self.disk.tier.drop(key)
        self.true.pop(key, None)
        assert self.disk.tier.find(key, 0.0) is None

    @rule(key=keys, ttl_s=st.none() | st.floats(0.1, 20))
    def expire(self, key: bytes, ttl_s: float | None) -> None:
        if self.disk.tier.expire(key, ttl_s, self.clock.now):
            ends_at = math.inf if ttl_s is None else self.clock.now + ttl_s
            self.true[key] = (self.true[key][0], ends_at)

    @rule(namespace=st.sampled_from([None, "a", "b"]))
    def clear(self, namespace: str | None) -> None:
        self.disk.tier.clear(namespace)
        for key in list(self.true):
            if namespace is None or block_keys.parse_namespace(key) == namespace:
                del self.true[key]

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.disk.tier.tick()

    @rule()
    def settle(self) -> None:
        self.let_go()
        self.disk.settle()

    @rule()
    def restart(self) -> None:
        self.let_go()
        self.disk.close()
        assert self.disk.held == 0
        self.disk = Disk(self.folder, CAPACITY)

    @rule(settled=st.booleans())
    def crash(self, settled: bool) -> None:
        """What a killed process leaves is what is in its files at that moment."""
        self.let_go()
        if settled:
            self.disk.settle()
        before = self.folder
        self.generation += 1
        self.folder.mkdir()
        for path in before.iterdir():
            with contextlib.suppress(FileNotFoundError):  # the writer is at work meanwhile
                shutil.copy(path, self.folder)
        self.disk.close()
        self.disk = Disk(self.folder, CAPACITY)

    def _check(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            wanted, ends_at = self.true[key]
            assert value == wanted
            assert self.clock.now < ends_at + 0.002

    @invariant()
    def nothing_untrue_is_there(self) -> None:
        if hasattr(self, "disk"):
            self.disk.hear()
            assert set(self.disk.tier.walk()) <= set(self.true)
            usage = self.disk.tier.usage()
            assert usage.used_bytes <= CAPACITY
            assert usage.waiting_bytes <= 4 * MIB
            assert usage.live_bytes <= usage.used_bytes

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            for key in list(self.true):
                self._check(key, self.disk.get(key))
            self.let_go()
            self.disk.close()
            assert self.disk.held == 0
        self.patch.undo()
        shutil.rmtree(self.root, ignore_errors=True)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
