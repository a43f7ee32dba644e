"""Whoever only thrashes is refused, nobody else is, and the door opens when it would pay."""

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
    """A store of a hundred values, asked before it is given, as workers do."""

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


def test_a_scan_is_refused_and_what_others_use_stays() -> None:
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


def test_going_round_and_round_finds_some_of_it() -> None:
    """Without admission LRU finds nothing: each value goes just before it is wanted."""
    shop = Shop()
    found = [shop.ask(BATCH, at % 300) for at in range(6000)]
    assert sum(found[-300:]) >= 90


def test_who_finds_what_it_stored_is_never_refused() -> None:
    shop = Shop()
    chance = random.Random(1)
    for _ in range(20_000):
        shop.ask(PEOPLE, int(chance.paretovariate(0.5)) % 1000)
        assert not shop.gate.shut()


def test_the_door_opens_when_what_is_refused_comes_again_in_time() -> None:
    shop = Shop()
    for number in range(1000):
        shop.ask(BATCH, number)
    assert shop.gate.shut() == [BATCH]
    for _ in range(5):
        for number in range(5000, 5050):  # as many as could be held
            shop.ask(BATCH, number)
    assert not shop.gate.shut()
    assert all(shop.ask(BATCH, number) for number in range(5000, 5050))


def test_what_comes_again_too_late_does_not_open_it() -> None:
    shop = Shop()
    for at in range(5000):
        shop.ask(BATCH, at % 400)
    assert shop.gate.shut() == [BATCH]


def test_deleting_is_no_sign_of_thrashing() -> None:
    shop = Shop()
    for number in range(2000):
        name = key(BATCH, number)
        assert shop.put(name) is None
        assert shop.store.drop(name, 0.0)
    assert not shop.gate.shut()


def test_names_and_keys_do_not_pile_up() -> None:
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


def test_what_was_used_long_ago_does_not_hold_the_door_open() -> None:
    shop = Shop()
    for at in range(20_000):
        shop.ask(BATCH, at if at % 10 == 0 else at % 50 + 10**6)
    assert not shop.gate.shut()
    for number in range(2 * ROOM):
        shop.ask(BATCH, number + 10**7)
    assert shop.gate.shut() == [BATCH]


def test_who_goes_on_asking_is_not_forgotten_for_names_that_come_once() -> None:
    shop = Shop()
    for number in range(1000):
        shop.ask(BATCH, number)
    for number in range(1000):
        shop.gate.used(key(f"{number:032x}", 0))
        assert isinstance(shop.put(key(BATCH, 10_000 + number)), Declined)


def test_it_is_off_unless_asked_for_and_told_in_the_stats() -> None:
    plain = Node(parse(("--memory", "16MiB")))
    asked = Node(parse(("--memory", "16MiB", "--admission")))
    assert plain.admission is None
    assert asked.admission is not None
    for number in range(5000):
        for node in (plain, asked):
            name = key(BATCH, number)
            node.store.put(name, bytes(10_000), now=0, ttl_s=None, condition=Condition.ALWAYS)
    assert plain.store.peek(key(BATCH, 4999), 0) is not None
    assert asked.store.peek(key(BATCH, 4999), 0) is None
    assert asked.admission.shut() == [BATCH]
