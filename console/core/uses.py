"""What uses a shared object, asked of the apps above the one that owns it.

An app registers in `AppConfig.ready` a check for a kind of object: "cluster", "team" or
"cache-tier", whose objects are not deleted while in use; "namespace", "followed" and "rights" are
what apps have in a cluster or need of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

# Users by object name, such as {"default": ["endpoint demo"]}.
Check = Callable[[], Mapping[str, Sequence[str]]]
_checks: defaultdict[str, list[Check]] = defaultdict(list)


def register(kind: str, check: Check) -> None:
    if check not in _checks[kind]:
        _checks[kind].append(check)


def unregister(kind: str, check: Check) -> None:
    _checks[kind].remove(check)


def by_name(kind: str) -> dict[str, list[str]]:
    """Return all users. Errors of a check propagate: a failure is not "unused"."""
    groups: dict[str, list[str]] = {}
    for check in _checks[kind]:
        for name, users in check().items():
            groups.setdefault(name, []).extend(users)
    return {name: sorted(users) for name, users in groups.items()}


def of(kind: str, name: str) -> list[str]:
    return by_name(kind).get(name, [])
