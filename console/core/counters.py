"""Process-wide counters for logs and metrics.

Counting never raises and never blocks on I/O.
"""

from __future__ import annotations

import threading
from collections import Counter

_lock = threading.Lock()
_counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()


def increment(name: str, **labels: str) -> None:
    key = (name, tuple(sorted(labels.items())))
    with _lock:
        _counts[key] += 1


def declare(name: str, **labels: str) -> None:
    """Start at zero, so that the first increment appears as a rise."""
    key = (name, tuple(sorted(labels.items())))
    with _lock:
        _counts.setdefault(key, 0)


def total(name: str, **labels: str) -> int:
    """Return the sum over all series with at least these labels."""
    label_pairs = set(labels.items())
    with _lock:
        return sum(
            number
            for (counter, pairs), number in _counts.items()
            if counter == name and label_pairs <= set(pairs)
        )


def snapshot() -> list[tuple[str, dict[str, str], int]]:
    with _lock:
        return [(name, dict(pairs), number) for (name, pairs), number in _counts.items()]
