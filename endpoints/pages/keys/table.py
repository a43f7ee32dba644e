"""Rows of key tables: each key with its terms and usage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from endpoints.keys import storage, usage
from endpoints.keys.selectors import key_id
from endpoints.keys.terms import KeyTerms, period_of
from endpoints.keys.usage import KeyUse
from endpoints.models import InferenceKey, KeyUsage

SHOWN_DAYS = 30
_SOON = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """`used`: over the last `SHOWN_DAYS` days. `spent`: tokens used of the present budget period
    and their share; None without a budget.
    """

    key: InferenceKey
    terms: KeyTerms
    used: KeyUse
    expired: bool
    ends_soon: bool
    own: bool
    limits: tuple[str, ...]
    spent: int | None
    share: float | None


def key_rows(found: Iterable[InferenceKey], endpoint: str = "") -> list[KeyRow]:
    """Return the rows in one query plus one per key with a budget. `endpoint` limits the usage."""
    now = timezone.now()
    recent = usage.usage_since(now - timedelta(days=SHOWN_DAYS))
    by_key = usage.usage_by_key(recent.filter(endpoint_name=endpoint) if endpoint else recent)
    return [_row(key, by_key.get(key_id(key), KeyUse()), now) for key in found]


def _row(key: InferenceKey, used: KeyUse, now: datetime) -> KeyRow:
    terms = key.allowed
    spent = share = None
    if terms.budget_tokens:
        begin, _ = period_of(now, terms.budget_period)
        of_period = KeyUsage.objects.filter(key_id=str(key.pk), hour__gte=begin)
        spent = usage.used(of_period).tokens
        share = min(100.0, 100 * spent / terms.budget_tokens)
    end = terms.expires_at
    return KeyRow(
        key=key,
        terms=terms,
        used=used,
        expired=terms.expired(now),
        ends_soon=end is not None and now < end < now + _SOON,
        own=key.endpoint_id is not None and key.name == storage.CONSOLE,
        limits=tuple(_describe_terms(terms)),
        spent=spent,
        share=share,
    )


def _describe_terms(terms: KeyTerms) -> Iterable[str]:
    if terms.requests_per_minute:
        yield f"{terms.requests_per_minute:,} requests a minute"
    if terms.tokens_per_minute:
        yield f"{terms.tokens_per_minute:,} tokens a minute"
    if terms.max_in_flight:
        yield f"{terms.max_in_flight:,} at a time"
    if terms.weight != 1:
        yield f"weight {terms.weight:g}"
