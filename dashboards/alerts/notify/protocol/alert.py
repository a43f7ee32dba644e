"""An alert as receivers are told of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

TEAM: Final = "team"
"""A label the console adds: whose endpoint it is about."""
_OFFSET, _PRIME, _MASK = 14695981039346656037, 1099511628211, (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Alert:
    """`ended` is None while it fires."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    started: datetime | None = None
    ended: datetime | None = None

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    @property
    def endpoint(self) -> str:
        return self.labels.get("endpoint", "")

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.labels)


def fingerprint(labels: Mapping[str, str]) -> str:
    """Alertmanager's own (FNV-1a over the sorted pairs), so that receivers which know alerts by it
    find the same one whoever tells them. Without what the console added."""
    mark = _OFFSET
    for name in sorted(labels):
        if name != TEAM:
            mark = _hashed(mark, _bytes(name, labels[name]))
    return f"{mark:016x}"


def _bytes(name: str, value: str) -> bytes:
    return name.encode() + b"\xff" + value.encode() + b"\xff"


def _hashed(mark: int, data: bytes) -> int:
    for byte in data:
        mark = ((mark ^ byte) * _PRIME) & _MASK
    return mark


def common(pairs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What all of them say alike."""
    found = list(pairs)
    first = found[0] if found else {}
    return {k: v for k, v in first.items() if all(other.get(k) == v for other in found[1:])}
