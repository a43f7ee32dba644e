"""Alert as sent to receivers."""

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
    """Return Alertmanager's fingerprint: FNV-1a over the sorted label pairs.

    Labels added by the console are left out, so that receivers get the same value from either
    sender.
    """
    mark = _OFFSET
    for name in sorted(labels.keys() - {TEAM}):
        for byte in name.encode() + b"\xff" + labels[name].encode() + b"\xff":
            mark = ((mark ^ byte) * _PRIME) & _MASK
    return f"{mark:016x}"


def common_pairs(pairs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the pairs common to all mappings."""
    found = list(pairs)
    first = found[0] if found else {}
    return {k: v for k, v in first.items() if all(other.get(k) == v for other in found[1:])}
