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

from console.provisioners.base import Drift

_KEY = os.urandom(32)
_MOST = 4096


@dataclass(slots=True)
class RecentObservation:
    """Cache entry of one workload. `checked_at` (monotonic clock): last comparison of all objects;
    `secrets`: digest last applied by this process.
    """

    checked_at: float = float("-inf")
    drift: tuple[Drift, ...] = ()
    secrets: str = ""


class Memory:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[Hashable, RecentObservation] = OrderedDict()
        self._said: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def of(self, key: Hashable) -> RecentObservation:
        with self._lock:
            seen = self._seen.setdefault(key, RecentObservation())
            self._seen.move_to_end(key)
            while len(self._seen) > _MOST:
                self._seen.popitem(last=False)
            return seen

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._seen.pop(key, None)

    def lately(self, key: Hashable, within_s: float, ask: Callable[[], Any]) -> Any:
        """Return the cached value if younger than `within_s`, else a new one. Errors are not
        cached.
        """
        with self._lock:
            at, answer = self._said.get(key, (float("-inf"), None))
        if time.monotonic() - at <= within_s:
            return answer
        answer = ask()
        with self._lock:
            self._said[key] = (time.monotonic(), answer)
            self._said.move_to_end(key)
            while len(self._said) > _MOST:
                self._said.popitem(last=False)
        return answer


def keyed_digest(text: str) -> str:
    """Return a keyed digest, equal for equal texts within this process."""
    return hmac.new(_KEY, text.encode(), hashlib.sha256).hexdigest()


MEMORY = Memory()
