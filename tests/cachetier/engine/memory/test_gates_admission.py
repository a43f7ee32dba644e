"""Admission gate: thrashing namespaces are rejected, others are not, and the gate reopens."""

from __future__ import annotations

import random

from cachetier.engine.config import parse
from cachetier.engine.memory.gates import NamespaceAdmission
from cachetier.engine.memory.memory_store import ENTRY_BYTES, MemoryStore
from cachetier.engine.node import Node
from cachetier.engine.store import Condition, Declined, DeclineReason
from cachetier.wire.envelope import block_key

PEOPLE, BATCH = "a" * 32, "b" * 32
ROOM = 100


def key(namespace: str, number: int) -> bytes:
    return block_key(namespace, 0, number.to_bytes(4, "big"))


COST = 1000 + len(key(PEOPLE, 0)) + ENTRY_BYTES


class Shop:
    """A store of a hundred values, looked up before each write, as by workers."""

    def __init__(self) -> None:
        self.gate = NamespaceAdmission(lambda: self.store.usage().capacity_bytes)
        self.store = MemoryStore(ROOM * COST, lambda reason, age: None, gates=(self.gate,))

    def ask(self, namespace: str, number: int) -> bool:
        """Whether it was found; what was not is put there if it may."""
        name = key(namespace, number)
        if self.store.touch(name, 0.0):
            return True
        self.put(name)
        return False

    def put(self, name: bytes) -> Declined | None:
        return self.store.put(name, bytes(1000), now=0, ttl_s=None, condition=Condition.ALWAYS)


def test_scan_is_rejected_and_used_values_stay() -> None:
    shop = Shop()
    for number in range(60):
        shop.ask(PEOPLE, number)
    for number in range(2000):
        shop.ask(BATCH, number)
        shop.ask(PEOPLE, number % 60)
    assert shop.gate.shut() == [BATCH]
    assert all(shop.ask(PEOPLE, number) for number in range(60))
    declined = shop.put(key(BATCH, 9999))
    assert isinstance(declined, Declined)
    assert declined.reason is DeclineReason.ADMISSION
    assert "enlarge the node" in declined.detail


def test_cyclic_access_has_some_hits() -> None:
    """Without admission LRU finds nothing: each value is evicted just before its next use."""
    shop = Shop()
    found = [shop.ask(BATCH, at % 300) for at in range(6000)]
    assert sum(found[-300:]) >= 90


def test_namespace_that_reads_its_values_is_never_rejected() -> None:
    shop = Shop()
    chance = random.Random(1)
    for _ in range(20_000):
        shop.ask(PEOPLE, int(chance.paretovariate(0.5)) % 1000)
        assert not shop.gate.shut()


def test_gate_opens_when_rejected_keys_return_in_time() -> None:
    shop = Shop()
    for number in range(1000):
        shop.ask(BATCH, number)
    assert shop.gate.shut() == [BATCH]
    for _ in range(5):
        for number in range(5000, 5050):  # as many as could be held
            shop.ask(BATCH, number)
    assert not shop.gate.shut()
    assert all(shop.ask(BATCH, number) for number in range(5000, 5050))


def test_late_returns_do_not_open_the_gate() -> None:
    shop = Shop()
    for at in range(5000):
        shop.ask(BATCH, at % 400)
    assert shop.gate.shut() == [BATCH]


def test_deletions_are_no_sign_of_thrashing() -> None:
    shop = Shop()
    for number in range(2000):
        name = key(BATCH, number)
        assert shop.put(name) is None
        assert shop.store.drop(name, 0.0)
    assert not shop.gate.shut()


def test_namespaces_and_keys_are_bounded() -> None:
    gate = NamespaceAdmission(lambda: 1000)
    for number in range(3000):
        gate.used(key(f"{number:032x}", 0))
    assert len(gate._spaces) <= 256
    shop = Shop()
    for number in range(5000):
        shop.ask(BATCH, number)
    refused = shop.gate._spaces[BATCH].shut
    assert refused is not None
    assert len(refused) <= ROOM


def test_old_hits_do_not_keep_the_gate_open() -> None:
    shop = Shop()
    for at in range(20_000):
        shop.ask(BATCH, at if at % 10 == 0 else at % 50 + 10**6)
    assert not shop.gate.shut()
    for number in range(2 * ROOM):
        shop.ask(BATCH, number + 10**7)
    assert shop.gate.shut() == [BATCH]


def test_active_namespace_is_not_displaced_by_one_time_names() -> None:
    shop = Shop()
    for number in range(1000):
        shop.ask(BATCH, number)
    for number in range(1000):
        shop.gate.used(key(f"{number:032x}", 0))
        assert isinstance(shop.put(key(BATCH, 10_000 + number)), Declined)


def test_gate_is_off_by_default_and_in_the_stats() -> None:
    plain = Node(parse(("--memory", "16MiB")))
    requested = Node(parse(("--memory", "16MiB", "--admission")))
    assert plain.admission is None
    assert requested.admission is not None
    for number in range(5000):
        for node in (plain, requested):
            name = key(BATCH, number)
            node.store.put(name, bytes(10_000), now=0, ttl_s=None, condition=Condition.ALWAYS)
    assert plain.store.peek(key(BATCH, 4999), 0) is not None
    assert requested.store.peek(key(BATCH, 4999), 0) is None
    assert requested.admission.shut() == [BATCH]
