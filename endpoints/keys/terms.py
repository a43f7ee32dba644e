"""Permissions, expiry and limits of an inference key; `endpoints.keys.bodies` validates them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

DAYS_MAX = 3650
MAX_RATE = 1_000_000_000
PERIODS: Final = ("day", "month")


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """0 and empty mean no limit. `models`: names accepted in "model". `pin`: may choose the worker.
    `control`: may use worker control paths such as /sleep. Rates apply to the whole endpoint;
    tokens are prompt plus completion. `weight`: share of the work while several keys queue.
    `budget_tokens` apply to one UTC day or month.
    """

    models: tuple[str, ...] = ()
    pin: bool = False
    control: bool = False
    expires_at: datetime | None = None
    max_in_flight: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    weight: float = 1.0
    budget_tokens: int = 0
    budget_period: str = "month"

    def to_dict(self) -> dict[str, Any]:
        document = asdict(self)
        document["models"] = list(self.models)
        document["expires_at"] = self.expires_at.isoformat() if self.expires_at else None
        return document

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


NO_TERMS: Final = KeyTerms()


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A valid key: its hash, never the secret. `pin`: may choose the worker. `group`: its key
    group's id.

    `spent_until` and `expires` are epoch seconds, 0 for never. A key in rotation is listed twice
    with the same id.
    """

    id: str
    sha256: str
    pin: bool = False
    terms: KeyTerms = NO_TERMS
    spent_until: float = 0.0
    expires: float = 0.0
    group: str = ""


NAMES = frozenset(KeyTerms.__dataclass_fields__)


def terms_from_dict(stored: Mapping[str, Any]) -> KeyTerms:
    """Return the terms from `to_dict`'s result; missing fields get their defaults."""
    values = {name: value for name, value in stored.items() if name in NAMES}
    values["models"] = tuple(values.get("models", ()))
    when = values.get("expires_at")
    values["expires_at"] = datetime.fromisoformat(when) if when else None
    return KeyTerms(**values)


def period_of(now: datetime, period: str) -> tuple[datetime, datetime]:
    """Return start and end of the UTC day or month that contains `now`."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return day, day + timedelta(days=1)
    first = day.replace(day=1)
    return first, (first + timedelta(days=32)).replace(day=1)
