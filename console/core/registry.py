"""Registries that apps fill in `AppConfig.ready`, such as menu entries or periodic jobs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
# Users by object name, such as {"default": ["endpoint demo"]}.
Check = Callable[[], Mapping[str, Sequence[str]]]


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


class OwnerRegistry(Registry[Check]):
    """Users of a shared object, such as the endpoints of a cluster; an object with users is not
    deleted.
    """

    def by_name(self) -> dict[str, list[str]]:
        """Return all users. Errors of a check propagate: a failure is not "unused"."""
        groups: dict[str, list[str]] = {}
        for check in self:
            for thing, names in check().items():
                groups.setdefault(thing, []).extend(names)
        return {thing: sorted(names) for thing, names in groups.items()}

    def of(self, name: str) -> list[str]:
        return self.by_name().get(name, [])
