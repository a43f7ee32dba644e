"""Computed prompt tokens by cause with their prefill time and price."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from dashboards.costs.formulas.price_terms import parse_stored_needs
from dashboards.costs.formulas.savings import HOUR_S, rate
from dashboards.costs.prices.factors import known
from dashboards.costs.prices.machines import occupied_machines
from dashboards.models import Calibration
from endpoints.keys import selectors as keys
from endpoints.models import Endpoint
from endpoints.router import selectors
from routing.analysis.label_names import get_name
from routing.analysis.misses import (
    MissExample,
    MissRemedy,
    MissTotals,
    TemplateTotals,
    find_examples,
    find_remedy,
)

RANGES = {"1h": 1, "6h": 6, "24h": 24}
DEFAULT_RANGE = "24h"
MAX_LABELS = 20
MAX_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class MissPrice:
    """Worker seconds and USD of a computed token; None: not calibrated, or no price. `error`:
    relative, from the spread of the calibration's prompt pairs. `why`: what is missing.
    """

    seconds: float | None = None
    usd: float | None = None
    error: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class MissRow:
    code: str
    label: str
    tokens: int
    share: float
    seconds: float | None
    usd: float | None
    usd_error: float | None
    remedy: MissRemedy | None = None


@dataclass(frozen=True, slots=True)
class TemplateRow:
    """A template whose prompts change early. `cost`: what was computed because of it; `saving`:
    the part that a stable layout would have had cached.
    """

    code: str
    totals: TemplateTotals
    cost: MissRow
    saving: MissRow


@dataclass(frozen=True, slots=True)
class MissHour:
    """Computed tokens of the hour that begins at `start`, and by cause."""

    start: datetime
    row: MissRow
    causes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MissReport:
    key: str
    since: datetime
    totals: MissTotals
    price: MissPrice
    causes: Sequence[MissRow]
    keys: Sequence[MissRow]
    prefixes: Sequence[MissRow]
    hours: Sequence[MissHour]
    templates: Sequence[TemplateRow]
    error: str = ""
    note: str = ""
    examples: Sequence[MissExample] = ()


def report(endpoint: Endpoint, key: str) -> MissReport:
    misses = selectors.misses(endpoint, RANGES[key], time.time())
    totals = misses.found
    price = price_of(endpoint)
    names = selectors.prefix_names(endpoint)
    callers = keys.names_by_id(totals.keys)
    whole = totals.computed

    def row(code: str, label: str, tokens: int, remedy: MissRemedy | None = None) -> MissRow:
        usd = None if price.usd is None else tokens * price.usd
        return MissRow(
            code,
            label,
            tokens,
            tokens / whole if whole else 0.0,
            None if price.seconds is None else tokens * price.seconds,
            usd,
            None if usd is None or price.error is None else usd * price.error,
            remedy,
        )

    def rows(sums: Mapping[str, Mapping[str, int]], named: Mapping[str, str]) -> list[MissRow]:
        listed = [
            row(name, named.get(name) or name or "–", sum(causes.values()))
            for name, causes in sums.items()
        ]
        return sorted(listed, key=lambda one: -one.tokens)[:MAX_LABELS]

    templates = [
        TemplateRow(
            code,
            template,
            row(
                *(template.main_cause, get_name("cause", template.main_cause), template.tokens),
                find_remedy(template.main_cause),
            ),
            row("", "", template.saved),
        )
        for code, template in totals.templates.items()
    ]
    templates.sort(key=lambda one: (-one.cost.tokens, one.code))

    return MissReport(
        key,
        datetime.fromtimestamp(totals.since, UTC),
        totals,
        price,
        [
            row(cause, get_name("cause", cause), tokens, find_remedy(cause))
            for cause, tokens in totals.causes.most_common()
        ],
        rows(totals.keys, callers),
        rows(totals.prefixes, names),
        [
            MissHour(datetime.fromtimestamp(hour, UTC), row("", "", sum(causes.values())), causes)
            for hour, causes in sorted(totals.hours.items(), reverse=True)
        ],
        templates[:MAX_LABELS],
        misses.error,
        misses.note,
    )


def worker_price(endpoint: Endpoint) -> float | None:
    """Return USD per hour of a worker; None without a price."""
    return rate(parse_stored_needs(endpoint.spec), occupied_machines()).usd_hour


def price_of(endpoint: Endpoint) -> MissPrice:
    needs = parse_stored_needs(endpoint.spec)
    slope = known([(endpoint.pk, needs)]).get(endpoint.pk)
    if slope is None:
        return MissPrice(why="Not calibrated: the prefill time per prompt token is unknown.")
    samples = Calibration.objects.values_list("samples", flat=True).get(pk=slope.calibration.pk)
    priced = rate(needs, occupied_machines())
    usd = None if priced.usd_hour is None else slope.slope * priced.usd_hour / HOUR_S
    return MissPrice(slope.slope, usd, slope_error(samples, slope.slope), priced.why)


def slope_error(samples: Any, slope: float) -> float | None:
    """Return the median relative deviation of the pairs' slopes; None without two pairs."""
    try:
        pairs = list(zip(samples[::2], samples[1::2], strict=False))
        each = [
            (long["ttft_s"] - short["ttft_s"]) / (long["tokens"] - short["tokens"])
            for short, long in pairs
        ]
    except (TypeError, KeyError, ZeroDivisionError):
        return None
    if len(each) < 2 or not slope:
        return None
    return median(abs(each_slope - slope) / slope for each_slope in each)


def examples(endpoint: Endpoint, cause: str) -> list[MissExample]:
    """Return kept decisions with this cause."""
    reply = selectors.decisions(endpoint, selectors.MAX_DECISIONS, brief=True)
    return find_examples(reply.found, cause, MAX_EXAMPLES)
