"""Plain counters of this process, for the log and for whoever exposes them.

Promises that counting never fails and never blocks for I/O. Knows nobody's meaning.
"""

from __future__ import annotations

import threading
from collections import Counter

_lock = threading.Lock()
_counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()


def count(name: str, **labels: str) -> None:
    key = (name, tuple(sorted(labels.items())))
    with _lock:
        _counts[key] += 1


def declare(name: str, **labels: str) -> None:
    """A zero from now on, so that the first one counted shows as a rise."""
    key = (name, tuple(sorted(labels.items())))
    with _lock:
        _counts.setdefault(key, 0)


def value(name: str, **labels: str) -> int:
    """The sum over all children which carry at least these labels."""
    wanted = set(labels.items())
    with _lock:
        return sum(
            number
            for (known, pairs), number in _counts.items()
            if known == name and wanted <= set(pairs)
        )


def snapshot() -> list[tuple[str, dict[str, str], int]]:
    with _lock:
        return [(name, dict(pairs), number) for (name, pairs), number in _counts.items()]
