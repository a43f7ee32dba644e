"""Registry of the users of a shared object, such as the endpoints of a cluster.

An app registers a check in its `AppConfig.ready`; objects with users are not deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

# Users by object name, such as {"default": ["endpoint demo"]}.
Check = Callable[[], Mapping[str, Sequence[str]]]


class OwnerRegistry:
    def __init__(self) -> None:
        self._checks: list[Check] = []

    def register(self, check: Check) -> None:
        if check not in self._checks:
            self._checks.append(check)

    def unregister(self, check: Check) -> None:
        if check in self._checks:
            self._checks.remove(check)

    def by_name(self) -> dict[str, list[str]]:
        """Return all users. Errors of a check propagate: a failure is not "unused"."""
        found: dict[str, list[str]] = {}
        for check in self._checks:
            for thing, names in check().items():
                found.setdefault(thing, []).extend(names)
        return {thing: sorted(names) for thing, names in found.items()}

    def of(self, name: str) -> list[str]:
        return self.by_name().get(name, [])
