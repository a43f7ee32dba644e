"""Query each full hour from Prometheus once and add it to the endpoints' days.

An hour is counted once, whatever the number of processes and passes. Hours missed while the console
or Prometheus was down are queried later, up to `BACKFILL` back; nothing is written while Prometheus
does not respond. Unscraped time stays unknown: `covered_s` is the scraped part of the hour.

Stored days are valued with the prices of their day and measured token times. `revalue` is
idempotent: a price or calibration entered later applies to the days it is for and no others.
Unknown values stay unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Sum

from console.catalogue import selectors as catalogue
from console.catalogue.core.builtin import Instance
from dashboards.costs.formulas import counts as formulas_counts
from dashboards.costs.formulas.counts import count_usage
from dashboards.costs.formulas.price_terms import Needs
from dashboards.costs.formulas.savings import HOUR_S, Counts, worker_share
from dashboards.costs.ledger import endpoint_states
from dashboards.costs.ledger.endpoint_states import EndpointState, stored_needs
from dashboards.costs.models import CostDay, CostPlace, MeasuredHour
from dashboards.costs.prices import tiers
from dashboards.costs.prices.factors import by_settings
from dashboards.costs.prices.machines import occupy
from dashboards.costs.prices.tiers import Terms, TierCostShare
from dashboards.prometheus.http.client import Asker, Question
from endpoints import selectors

log = logging.getLogger(__name__)

BACKFILL = timedelta(days=14)
"""Default retention of Prometheus is 15 days."""
SETTLED = timedelta(minutes=2)
"""Delay after the end of an hour, for its last scrapes."""
PATIENCE = timedelta(hours=12)
"""Waiting time for an unavailable source before the hour is added without it."""
_AT_ONCE = 24
HOUR = timedelta(hours=1)


def measure_hours(asker: Asker, now: datetime) -> int:
    """Add missing hours, the latest first, and return their number."""
    done = 0
    for hour in missing_hours(now)[:_AT_ONCE]:
        added = add_hour(asker, hour, patient=now - hour < PATIENCE)
        if added is HourResult.NO_ANSWER:
            break
        done += added is HourResult.YES
    if done:
        revalue(now.astimezone(UTC).date())
    return done


def missing_hours(now: datetime) -> list[datetime]:
    """Return the ended hours not yet queried, latest first, since the first endpoint existed."""
    last = (now.astimezone(UTC) - SETTLED).replace(minute=0, second=0, microsecond=0) - HOUR
    first = last - BACKFILL
    measured = set(MeasuredHour.objects.filter(hour__gte=first).values_list("hour", flat=True))
    begun = selectors.first_created_at()
    begins = [moment for moment in (begun, min(measured, default=None)) if moment is not None]
    if not begins:
        return []
    first = max(first, min(begins).astimezone(UTC).replace(minute=0, second=0, microsecond=0))
    hours = int((last - first) / HOUR) + 1
    due_hours = (last - n * HOUR for n in range(max(0, hours)))
    return [hour for hour in due_hours if hour not in measured]


class HourResult(StrEnum):
    YES = "yes"
    IN_PARTS = "in parts"
    """One of several sources did not respond: the hour is retried later."""
    NO_ANSWER = "no answer"


def add_hour(asker: Asker, hour: datetime, *, patient: bool = True) -> HourResult:
    """Add one hour; unless `patient`, a partial result is added with a lower coverage."""
    end = hour + HOUR
    query = formulas_counts.coverage_query(int(HOUR_S))
    covered = asker.ask({"covered": Question(query, int(end.timestamp()))})["covered"]
    counted = count_usage(asker, int(HOUR_S), end.timestamp())
    fault = covered.fault or counted.fault
    if fault is not None:
        log.warning(
            "could not measure costs of %s, retrying later: %s", hour.isoformat(), fault.detail
        )
        return HourResult.NO_ANSWER
    if covered.missing and patient:
        return HourResult.IN_PARTS
    seconds = [series.latest or 0.0 for series in covered.series]
    sources = len(seconds) + len(covered.missing)
    row = MeasuredHour(
        hour=hour,
        covered_s=min(HOUR_S, sum(seconds) / sources) if sources else 0.0,
        endpoints=len(counted.by_endpoint),
    )
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            _add(hour, counted.by_endpoint)
    except IntegrityError:
        log.info("costs of %s already added by another process", hour.isoformat())
    return HourResult.YES


def _add(hour: datetime, counted: Mapping[str, Counts]) -> None:
    states = endpoint_states.states_at(hour + HOUR, counted)
    prices, slopes, day = catalogue.load_prices(), by_settings(), hour.date()
    use = [
        (states[name].needs, (count.worker_s or 0.0) / HOUR_S) for name, count in counted.items()
    ]
    machines = occupy(catalogue.instances_by_name(), use)
    rates = tiers.rates(machines, lambda machine: prices.on(machine, day), day)
    # Owners pay for a tier in idle hours too.
    uses = {name: (state.needs.tier, counted.get(name, Counts())) for name, state in states.items()}
    parts = tiers.tier_cost_shares(rates, uses, hour.timestamp(), (hour + HOUR).timestamp())
    begun = {(row.endpoint_name, row.key): row for row in CostDay.objects.filter(day=day)}
    for name, state in states.items():
        needs, tier = state.needs, parts.get(name)
        if name not in counted and not (tier and tier.hours):
            continue
        part, l1_part = machine_part(needs, machines)
        worth = {
            "part": part,
            "l1_part": l1_part,
            "price": prices.on(needs.machine, day),
            "slope": slopes.get(needs.settings),
            **(_of_tier(tier) if tier else {}),
        }
        row = begun.get((name, state.key)) or _row(name, day, state, worth)
        _sum(row, hour, counted.get(name, Counts()), tier, (part, l1_part))


def _row(name: str, day: date, state: EndpointState, worth: Mapping[str, Any]) -> CostDay:
    """`worth`: prices and factors of a new row, by column."""
    needs = state.needs
    row, _ = CostDay.objects.get_or_create(
        endpoint_name=name,
        day=day,
        key=state.key,
        defaults={
            "team_id": state.team_id,
            "team": state.team,
            "tags": dict(needs.tags),
            "model": needs.model[:300],
            "machine": needs.machine[:63],
            "settings": needs.settings,
            "held": state.held,
            "simulated": needs.simulated,
            "tier": needs.tier[:200],
            **worth,
        },
    )
    return row


def _of_tier(tier: TierCostShare) -> dict[str, Any]:
    return {"tier_place": tier.rate.place, **tier_prices(tier.rate.terms)}


def _sum(
    row: CostDay,
    hour: datetime,
    counts: Counts,
    tier: TierCostShare | None,
    parts: tuple[float | None, float | None],
) -> None:
    """Add an hour to a day. The day's parts become the average over its worker seconds."""
    more = {
        "worker_s": counts.worker_s,
        "busy_s": counts.busy_s,
        "prompt": counts.prompt,
        "generated": counts.generated,
        "requests": counts.requests,
        "cached_device": counts.cached.get("device"),
        "cached_l1": counts.cached.get("l1"),
        "cached_l2": counts.cached.get("l2"),
        "load_s": counts.load_s,
    }
    changes: dict[str, Any] = {name: F(name) + value for name, value in more.items() if value}
    more_s = counts.worker_s or 0.0
    for name, part in zip(("part", "l1_part"), parts, strict=True):
        if more_s and part is not None and getattr(row, name) is not None:
            spent = F("worker_s") * F(name) + more_s * part
            changes[name] = spent / (F("worker_s") + more_s)
    if tier is not None:
        held = tier.hours * tier.share
        changes |= {
            "tier_h": F("tier_h") + held,
            "tier_memory_h": F("tier_memory_h") + held * tier.rate.memory_gib,
            "tier_disk_h": F("tier_disk_h") + held * tier.rate.disk_gib,
        }
        if tier.rate.place == CostPlace.GONE != row.tier_place:
            # A single hour of unknown size makes the day unknown.
            changes |= _of_tier(tier)
    CostDay.objects.filter(pk=row.pk).update(**changes, hours=F("hours").bitor(1 << hour.hour))


REACH = timedelta(days=400)
"""Period before today to which a new price applies: the retention of key usage."""


def machine_part(
    needs: Needs, machines: Mapping[str, Instance]
) -> tuple[float | None, float | None]:
    """Return a worker's share of its machine, and the part of it due to L1."""
    instance = machines.get(needs.machine)
    if instance is None:
        return None, None
    held = worker_share(needs, instance)
    return held.part, held.l1_part


def revalue(today: date) -> None:
    since = today - REACH
    _parts(since)
    _prices(since)
    _tiers(since)
    _slopes(since)


def _parts(since: date) -> None:
    """Fill in machines that were missing in the catalogue."""
    machines = catalogue.instances_by_name()
    lacking = CostDay.objects.filter(day__gte=since, part=None, machine__in=machines)
    by_day: dict[date, list[CostDay]] = {}
    for row in lacking:
        by_day.setdefault(row.day, []).append(row)
    for day, rows in by_day.items():
        hours = MeasuredHour.objects.filter(hour__date=day)
        covered_s = hours.aggregate(seconds=Sum("covered_s"))["seconds"] or 24 * HOUR_S
        needs = [stored_needs(row) for row in rows]
        use = [(need, row.worker_s / covered_s) for need, row in zip(needs, rows, strict=True)]
        occupied = occupy(machines, use)
        for need, row in zip(needs, rows, strict=True):
            row.part, row.l1_part = machine_part(need, occupied)
            row.save(update_fields=["part", "l1_part"])


def _prices(since: date) -> None:
    prices = catalogue.load_prices()
    cost_days = CostDay.objects.filter(day__gte=since).exclude(machine="").order_by()
    for machine, day, price in cost_days.values_list("machine", "day", "price").distinct():
        now = prices.on(machine, day)
        if now != price:
            CostDay.objects.filter(machine=machine, day=day).update(price=now)


_TIER_PRICES = ("tier_price", "tier_memory_price", "tier_disk_price")


def tier_prices(terms: Terms) -> dict[str, float | None]:
    """Return the prices by column."""
    return dict(zip(_TIER_PRICES, (terms.whole, terms.memory, terms.disk), strict=True))


def _tiers(since: date) -> None:
    machines, prices, stated_prices = (
        catalogue.instances_by_name(),
        catalogue.load_prices(),
        tiers.stated_prices(),
    )
    rows = CostDay.objects.filter(day__gte=since).exclude(tier="").order_by()
    kept_rows = rows.exclude(tier_place=CostPlace.KEPT)
    for tier, place, day, *then in kept_rows.values_list(
        "tier", "tier_place", "day", *_TIER_PRICES
    ).distinct():
        price = partial(prices.on, day=day)
        terms = tiers.terms(tier, place, stated_prices.on(tier, day), machines, price)
        if terms.machine and terms.machine not in machines:
            continue  # tier removed since: its stored size stays
        now = tier_prices(terms)
        if list(now.values()) != then:
            kept_rows.filter(tier=tier, tier_place=place, day=day).update(**now)


def _slopes(since: date) -> None:
    """Fill missing slopes only: a later calibration does not apply to earlier days."""
    lacking = CostDay.objects.filter(day__gte=since, slope=None).exclude(settings="").order_by()
    settings_names = set(lacking.values_list("settings", flat=True).distinct())
    for settings, slope in by_settings().items():
        if settings in settings_names:
            lacking.filter(settings=settings).update(slope=slope)
