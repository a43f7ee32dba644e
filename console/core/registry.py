"""Who uses a thing, asked of those who know: the room which owns the thing knows none of them.

An app registers a check in its `AppConfig.ready`; what has users is not deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

# Everybody who uses one, by the thing's name, such as {"default": ["endpoint demo"]}.
Check = Callable[[], Mapping[str, Sequence[str]]]


class OwnerRegistry:
    """The checks about one kind of thing."""

    def __init__(self) -> None:
        self._checks: list[Check] = []

    def register(self, check: Check) -> None:
        if check not in self._checks:
            self._checks.append(check)

    def unregister(self, check: Check) -> None:
        if check in self._checks:
            self._checks.remove(check)

    def by_name(self) -> dict[str, list[str]]:
        """Everybody, in as many questions as there are checks. A check that fails is not "nobody":
        its error is the caller's."""
        found: dict[str, list[str]] = {}
        for check in self._checks:
            for thing, names in check().items():
                found.setdefault(thing, []).extend(names)
        return {thing: sorted(names) for thing, names in found.items()}

    def of(self, name: str) -> list[str]:
        return self.by_name().get(name, [])
