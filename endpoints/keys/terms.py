"""Permissions, expiry and limits of an inference key: parsed, validated and serialised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from console.core.errors import Problem
from endpoints.spec.endpoint_spec import SpecErrors

DAYS_MAX = 3650
MAX_RATE = 1_000_000_000
PERIODS: Final = ("day", "month")
_LONGEST_MODEL = 256
_MODELS_MAX = 100


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


_WHOLE = ("max_in_flight", "requests_per_minute", "tokens_per_minute", "budget_tokens")
NAMES = frozenset(KeyTerms.__dataclass_fields__)


def terms_from_dict(stored: Mapping[str, Any]) -> KeyTerms:
    """Return the terms from `to_dict`'s result; missing fields get their defaults."""
    values = {name: value for name, value in stored.items() if name in NAMES}
    values["models"] = tuple(values.get("models", ()))
    when = values.get("expires_at")
    values["expires_at"] = datetime.fromisoformat(when) if when else None
    return KeyTerms(**values)


def parse(data: Mapping[str, Any], now: datetime, before: KeyTerms | None = None) -> KeyTerms:
    """Return the requested terms; missing fields keep their values of `before`. `expires_in_days`
    is an alternative to `expires_at`. Raise SpecErrors.
    """
    errors: list[Problem] = []
    remaining = dict(data)
    if "expires_in_days" in remaining:
        days = remaining.pop("expires_in_days")
        remaining["expires_at"] = _expiry_in_days(days, now, errors)
    values: dict[str, Any] = {}
    for name, value in remaining.items():
        if name not in NAMES:
            names = ", ".join(sorted(NAMES | {"expires_in_days"}))
            errors.append(_error(name, value, "Unknown field.", f"Known fields: {names}."))
        else:
            values[name] = _read(name, value, now, errors)
    if errors:
        raise SpecErrors(errors)
    return replace(before or KeyTerms(), **values)


def _read(name: str, value: Any, now: datetime, errors: list[Problem]) -> Any:
    if name in _WHOLE:
        return _whole(name, value, errors)
    if name in ("pin", "control"):
        if not isinstance(value, bool):
            errors.append(_error(name, value, "Not a boolean.", "Send true or false."))
        return value
    if name == "expires_at":
        return _moment(value, now, errors)
    if name == "models":
        return _models(value, errors)
    if name == "weight":
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not 0.01 <= value <= 1000:
            errors.append(_error(name, value, "Invalid weight.", "Send 0.01 to 1000; default 1."))
        return value
    if value not in PERIODS:
        errors.append(_error(name, value, "Unknown period.", "Choose day or month."))
    return value


def _whole(name: str, value: Any, errors: list[Problem]) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_RATE:
        text = "Not an integer in range."
        errors.append(_error(name, value, text, f"Give 0 (no limit) to {MAX_RATE}."))
    return value


def _models(value: Any, errors: list[Problem]) -> tuple[str, ...]:
    good = isinstance(value, list | tuple) and len(value) <= _MODELS_MAX
    if not good or not all(
        isinstance(model, str) and 0 < len(model) <= _LONGEST_MODEL and model.isprintable()
        for model in value
    ):
        remedy = f"Give a list of up to {_MODELS_MAX} names; an empty list allows all models."
        errors.append(_error("models", value, "Not a list of model names.", remedy))
        return ()
    return tuple(dict.fromkeys(value))


def _expiry_in_days(days: Any, now: datetime, errors: list[Problem]) -> datetime | None:
    if days is None:
        return None
    if isinstance(days, bool) or not isinstance(days, int) or not 0 < days <= DAYS_MAX:
        remedy = f"Send 1 to {DAYS_MAX}, or omit it for a key without expiry."
        errors.append(_error("expires_in_days", days, "Invalid number of days.", remedy))
        return None
    return now + timedelta(days=days)


def _moment(value: Any, now: datetime, errors: list[Problem]) -> datetime | None:
    """Parse a time, UTC without a zone. None means no expiry."""
    if value is None or isinstance(value, datetime):
        return value
    remedy = "Send a future time such as 2027-01-31T00:00:00Z, or null for none."
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        errors.append(_error("expires_at", value, "Invalid time.", remedy))
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if not now < moment <= now + timedelta(days=DAYS_MAX):
        errors.append(
            _error("expires_at", value, "The time is in the past or too far in the future.", remedy)
        )
        return None
    return moment


def _error(field: str, value: Any, message: str, remedy: str) -> Problem:
    return Problem(field, value, message, remedy, "invalid")


def period_of(now: datetime, period: str) -> tuple[datetime, datetime]:
    """Return start and end of the UTC day or month that contains `now`."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return day, day + timedelta(days=1)
    first = day.replace(day=1)
    return first, (first + timedelta(days=32)).replace(day=1)
