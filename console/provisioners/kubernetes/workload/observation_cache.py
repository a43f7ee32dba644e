"""Per-process cache of recent observations.

Losing it costs requests but changes no decision. Entries are few, small and without secrets, only
digests under a key of this process.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from console.provisioners.base import Drift, Observation
from console.provisioners.kubernetes.api.kinds import ObjectKind
from console.provisioners.kubernetes.rendering.anchor import OwnedItem

Versions = frozenset[tuple[ObjectKind, str, str]]
"""Kind, name and version of each object of a workload."""

_KEY = os.urandom(32)
_MOST = 4096


@dataclass(frozen=True, slots=True)
class SettledWorkload:
    """Observation of a settled workload without drift, valid while its objects have these versions
    and until the monotonic clock reaches `until`. `digest` and `items` are those of its anchor.
    """

    observation: Observation
    versions: Versions
    digest: str
    items: frozenset[OwnedItem]
    until: float


@dataclass(slots=True)
class RecentObservation:
    """Cache entry of one workload. `checked_at` (monotonic clock) and `checked`: time of the last
    comparison of all objects and their versions before it, None if unknown; `secrets`: digest last
    applied by this process.
    """

    checked_at: float = float("-inf")
    checked: Versions | None = None
    drift: tuple[Drift, ...] = ()
    secrets: str = ""
    settled: SettledWorkload | None = None


class Memory:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[Hashable, RecentObservation] = OrderedDict()
        self._cached: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def of(self, key: Hashable) -> RecentObservation:
        with self._lock:
            recent = self._seen.setdefault(key, RecentObservation())
            self._seen.move_to_end(key)
            while len(self._seen) > _MOST:
                self._seen.popitem(last=False)
            return recent

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._seen.pop(key, None)

    def cached(self, key: Hashable, within_s: float, read: Callable[[], Any]) -> Any:
        """Return the cached value if younger than `within_s`, else a new one. Errors are not
        cached.
        """
        with self._lock:
            cached_at, answer = self._cached.get(key, (float("-inf"), None))
        if time.monotonic() - cached_at <= within_s:
            return answer
        answer = read()
        with self._lock:
            self._cached[key] = (time.monotonic(), answer)
            self._cached.move_to_end(key)
            while len(self._cached) > _MOST:
                self._cached.popitem(last=False)
        return answer


def keyed_digest(text: str) -> str:
    """Return a keyed digest, equal for equal texts within this process."""
    return hmac.new(_KEY, text.encode(), hashlib.sha256).hexdigest()


MEMORY = Memory()
