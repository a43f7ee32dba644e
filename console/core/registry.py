"""Registries that apps fill in `AppConfig.ready`, such as menu entries or periodic jobs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Registry(Generic[Item]):
    """Items in the order of their registration; of those with the same key, the last."""

    def __init__(self, key: Callable[[Item], Hashable] = lambda item: item) -> None:
        self._key = key
        self._items: dict[Hashable, Item] = {}

    def register(self, item: Item) -> None:
        self._items[self._key(item)] = item

    def unregister(self, item: Item) -> None:
        self._items.pop(self._key(item), None)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())
