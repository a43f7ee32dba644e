"""Hourly usage of inference keys from router counters, and token budgets.

Counters are added once however often and by however many processes they are reported; a restarted
router counts from 0. Usage of deleted keys is kept. Usage after the last report of a router that
crashed is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import TruncDate

from endpoints.keys import storage
from endpoints.keys.terms import KeyTerms, period_of
from endpoints.models import Endpoint, InferenceKey, KeyUsage, UsageMark

KEPT_DAYS = 400
_MARKS_KEPT_DAYS = 7
_LONGEST_KEY = 64
_MARKS_COUNTED = timedelta(days=1)
_MOST_MARKS = 64
_ANSWERED_LATELY = timedelta(seconds=60)
_MARK_FRESH = timedelta(seconds=25)
"""Less than half of `_ANSWERED_LATELY`: marks of idle routers are renewed in time."""


@dataclass(frozen=True, slots=True)
class KeyUse:
    """Sums over a period. Tokens are reported by engines, or estimated by routers for the
    `unreported` requests (the estimates are also given separately).
    """

    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    unreported: int = 0
    estimated_prompt_tokens: int = 0
    estimated_completion_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def estimated_tokens(self) -> int:
        return self.estimated_prompt_tokens + self.estimated_completion_tokens

    @property
    def hit_rate(self) -> float | None:
        """Return the cached share of prompt tokens, None without any."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


COUNTS = tuple(field.name for field in fields(KeyUse))
_SUMS = {f"sum_{name}": Sum(name) for name in COUNTS}


def add_report(endpoint: Endpoint, report: Mapping[str, Any], now: datetime) -> None:
    """Add a router's counters since its last report. `report`: `instance`, and `keys` by id."""
    with transaction.atomic():
        mark, _ = UsageMark.objects.select_for_update(no_key=True).get_or_create(
            endpoint=endpoint, instance=str(report["instance"])[:64]
        )
        for key_id, counts in report["keys"].items():
            key, before = str(key_id)[:_LONGEST_KEY], mark.counted.get(key_id, {})
            more = {name: _counter_increase(counts, before, name) for name in COUNTS}
            if any(more.values()):
                _add(endpoint.name, key, now, more)
                # Only increases are added: reports may arrive out of order.
                mark.counted[key_id] = {n: before.get(n, 0) + more[n] for n in COUNTS}
                _mark_used(key, counts)
        mark.seen_at = now
        mark.save(update_fields=["counted", "seen_at"])


Marks = Mapping[tuple[Any, str], UsageMark]


def latest_marks(now: datetime) -> Marks:
    """Return the routers that reported within a day, with the counters already added, in one
    query.
    """
    rows = UsageMark.objects.filter(seen_at__gt=now - _MARKS_COUNTED)
    return {(row.endpoint_id, row.instance): row for row in rows}


def find_idle(marks: Marks, endpoint: Endpoint, report: Mapping[str, Any]) -> UsageMark | None:
    """Return the mark of a router whose counters did not grow: `add_report` would only renew it."""
    mark = marks.get((endpoint.pk, str(report["instance"])[:64]))
    if mark is None or any(
        _counter_increase(counts, mark.counted.get(key_id, {}), name)
        for key_id, counts in report["keys"].items()
        for name in COUNTS
    ):
        return None
    return mark


def renew_marks(idle: Iterable[UsageMark], now: datetime) -> None:
    """Renew the marks that are not fresh, in one statement."""
    old = [mark.pk for mark in idle if now - mark.seen_at >= _MARK_FRESH]
    if old:
        UsageMark.objects.filter(pk__in=old, seen_at__lt=now).update(seen_at=now)


def any_budget() -> bool:
    return _budgeted_keys().exists()


def _budgeted_keys() -> QuerySet[InferenceKey]:
    return InferenceKey.objects.filter(revoked_at__isnull=True, terms__budget_tokens__gt=0)


def _counter_increase(counts: Mapping[str, Any], before: Mapping[str, int], name: str) -> int:
    value = counts.get(name, 0)
    return max(0, value - before.get(name, 0)) if type(value) is int else 0


def _add(endpoint: str, key_id: str, now: datetime, more: Mapping[str, int]) -> None:
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    row, _ = KeyUsage.objects.get_or_create(endpoint_name=endpoint, key_id=key_id, hour=hour)
    KeyUsage.objects.filter(pk=row.pk).update(**{n: F(n) + count for n, count in more.items()})


def _mark_used(key_id: str, counts: Mapping[str, Any]) -> None:
    used_at = counts.get("last_at")
    if key_id != storage.CONSOLE and isinstance(used_at, float) and len(key_id) == 36:
        InferenceKey.objects.filter(pk=key_id).update(
            last_used_at=datetime.fromtimestamp(used_at, UTC)
        )


def used(rows: QuerySet[KeyUsage]) -> KeyUse:
    return _key_use(rows.aggregate(**_SUMS))


def _key_use(sums: Mapping[str, Any]) -> KeyUse:
    return KeyUse(**{name: sums[f"sum_{name}"] or 0 for name in COUNTS})


def usage_since(moment: datetime) -> QuerySet[KeyUsage]:
    return KeyUsage.objects.filter(hour__gte=moment.replace(minute=0, second=0, microsecond=0))


def usage_by_key(rows: QuerySet[KeyUsage]) -> dict[str, KeyUse]:
    """Return sums by key id in one query; "" stands for unauthenticated requests."""
    grouped: Iterable[Mapping[str, Any]] = rows.order_by().values("key_id").annotate(**_SUMS)
    return {row["key_id"]: _key_use(row) for row in grouped}


@dataclass(frozen=True, slots=True)
class DayUse:
    endpoint: str
    key_id: str
    day: date
    used: KeyUse


def usage_by_day(begin: datetime, end: datetime, endpoints: Iterable[str]) -> list[DayUse]:
    rows = KeyUsage.objects.filter(hour__gte=begin, hour__lt=end, endpoint_name__in=list(endpoints))
    days = rows.order_by().values("endpoint_name", "key_id", day=TruncDate("hour", tzinfo=UTC))
    annotated: Iterable[Mapping[str, Any]] = days.annotate(**_SUMS)
    return [
        DayUse(row["endpoint_name"], row["key_id"], row["day"], _key_use(row)) for row in annotated
    ]


def spent_until(key: InferenceKey, now: datetime) -> datetime | None:
    """Return the end of the present period if the key's budget is used up."""
    terms = key.allowed
    if not terms.budget_tokens:
        return None
    spent, end = _used_of_period(key, terms, now)
    return end if spent >= terms.budget_tokens else None


def _used_of_period(key: InferenceKey, terms: KeyTerms, now: datetime) -> tuple[int, datetime]:
    """Return the tokens used of the present budget period, and its end."""
    begin, end = period_of(now, terms.budget_period)
    rows = KeyUsage.objects.filter(key_id=str(key.pk), hour__gte=begin, hour__lt=end)
    return used(rows).tokens, end


def budgets_left(endpoint: Endpoint, now: datetime) -> dict[str, dict[str, Any]]:
    """Return the budget left for each router of the endpoint, by key id. A key's budget is split
    evenly among its recently active routers; each subtracts what it has counted beyond `counted`,
    which is set for each router (see `counted_by`).

    `all`: what the endpoint's routers have left together, with the tokens of each instance that
    this includes, for routers that exchange state.
    """
    mine = _budgeted_keys().filter(Q(endpoint=endpoint) | Q(group__endpoints=endpoint))
    keys = list(mine.distinct())
    if not keys:
        return {}
    # Before the sums: a report added in between is then charged twice until the next round.
    recent_marks = UsageMark.objects.filter(endpoint=endpoint, seen_at__gt=now - _MARKS_COUNTED)
    marks = list(recent_marks.order_by("-seen_at")[:_MOST_MARKS])
    here = sum(mark.seen_at > now - _ANSWERED_LATELY for mark in marks)
    budgets: dict[str, dict[str, Any]] = {}
    for key in keys:
        terms = key.allowed
        spent, end = _used_of_period(key, terms, now)
        routers = UsageMark.objects.filter(
            endpoint__in=endpoints_of_keys([key]), seen_at__gt=now - _ANSWERED_LATELY
        ).count()
        left = terms.budget_tokens - spent
        share = left // max(routers, 1) if left > 0 else left
        name = str(key.pk)
        together = {
            "left": left * here // routers if left > 0 and routers > here else left,
            "counted": {mark.instance: _tokens(mark.counted.get(name, {})) for mark in marks},
        }
        resets_at = end.timestamp()
        budgets[name] = {"left": share, "counted": 0, "resets_at": resets_at, "all": together}
    return budgets


def counted_by(report: Mapping[str, Any], key_id: str) -> int:
    return _tokens(report["keys"].get(key_id, {}))


def _tokens(counts: Mapping[str, Any]) -> int:
    return sum(
        _counter_increase(counts, {}, name) for name in ("prompt_tokens", "completion_tokens")
    )


def update_budgets(now: datetime) -> list[InferenceKey]:
    """Update `spent_until` of every valid key. Return the changed keys, whose endpoints need a
    nudge.
    """
    changed = []
    for key in _budgeted_keys():
        until = spent_until(key, now)
        if until != key.spent_until:
            InferenceKey.objects.filter(pk=key.pk).update(spent_until=until)
            key.spent_until = until
            changed.append(key)
    return changed


def endpoints_of_keys(found: Iterable[InferenceKey]) -> QuerySet[Endpoint]:
    ids = [key.pk for key in found]
    direct = Endpoint.objects.filter(keys__in=ids)
    return (direct | Endpoint.objects.filter(key_groups__keys__in=ids)).distinct()


def prune(now: datetime) -> None:
    KeyUsage.objects.filter(hour__lt=now - timedelta(days=KEPT_DAYS)).delete()
    UsageMark.objects.filter(seen_at__lt=now - timedelta(days=_MARKS_KEPT_DAYS)).delete()
