"""The waist between the protocol and whatever keeps values: few verbs, no protocol words.

Keys and values are bytes-like and never changed once given. `now` is the caller's monotonic clock
in seconds, so that a store needs none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

Value = bytes | bytearray


class Condition(StrEnum):
    """When a value may be put."""

    ALWAYS = "always"
    ABSENT = "absent"
    PRESENT = "present"


class EvictionReason(StrEnum):
    CAPACITY = "capacity"
    TTL = "ttl"
    ADMIN = "admin"


class TooLargeError(ValueError):
    """The value could not be held even by an empty store."""


@dataclass(frozen=True, slots=True)
class Usage:
    used_bytes: int
    capacity_bytes: int
    entries: int


class Store(Protocol):
    def get(self, key: bytes, now: float) -> Value | None:
        """The value, counted as a use."""
        ...

    def peek(self, key: bytes, now: float) -> Value | None:
        """The value, not counted as a use."""
        ...

    def put(
        self, key: bytes, value: Value, *, now: float, ttl_s: float | None, condition: Condition
    ) -> bool:
        """Whether it was stored (False: the condition was not met). Raises TooLargeError."""
        ...

    def touch(self, key: bytes, now: float) -> bool:
        """Whether the key is there, counted as a use."""
        ...

    def drop(self, key: bytes, now: float) -> bool:
        """Whether the key was there."""
        ...

    def expire(self, key: bytes, ttl_s: float | None, now: float) -> bool:
        """Set or (None) clear when a key ends; whether it is there."""
        ...

    def ttl(self, key: bytes, now: float) -> float | None:
        """Seconds left, infinite for a key without end, None if it is not there."""
        ...

    def keys(self) -> Iterator[bytes]:
        """Every key, some perhaps already past their time."""
        ...

    def sweep(self, now: float) -> int:
        """Drop what is past its time; how many were."""
        ...

    def clear(self, now: float) -> int: ...

    def usage(self) -> Usage: ...
