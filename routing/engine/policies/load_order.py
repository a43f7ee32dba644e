"""Policies' view of workers, and of workers ordered by load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol


class RoutingTarget(Protocol):
    """Policies' view of a worker."""

    @property
    def id(self) -> str: ...
    @property
    def slot(self) -> int: ...  # unique small number in the table
    @property
    def seed(self) -> int: ...
    @property
    def load(self) -> float: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def last_pick(self) -> int: ...


Entry = tuple[float, int, str, RoutingTarget]  # load, last pick, id, worker: sort order


class LoadOrder(Protocol):
    """Workers ordered by load (fleet.load.Order)."""

    @property
    def entries(self) -> Sequence[Entry]: ...
    @property
    def total(self) -> float: ...
    @property
    def bits(self) -> int: ...
    def lightest(self, bits: int, turn: int, count: int) -> list[RoutingTarget]: ...
    def some(self, bits: int, turn: int, count: int) -> list[RoutingTarget]: ...
    def up_to(self, good: Callable[[float], bool], bits: int) -> int: ...


class FleetWithout:
    __slots__ = ("_order", "bits", "entries", "total")

    def __init__(self, order: LoadOrder, tried: Collection[RoutingTarget]) -> None:
        self._order = order
        self.entries = [entry for entry in order.entries if entry[3] not in tried]
        self.total = sum(entry[0] for entry in self.entries)
        self.bits = order.bits
        for worker in tried:
            self.bits &= ~(1 << worker.slot)

    def lightest(self, bits: int, turn: int, count: int) -> list[RoutingTarget]:
        return self._order.lightest(bits & self.bits, turn, count)

    def some(self, bits: int, turn: int, count: int) -> list[RoutingTarget]:
        return self._order.some(bits & self.bits, turn, count)

    def up_to(self, good: Callable[[float], bool], bits: int) -> int:
        return self._order.up_to(good, bits & self.bits)
