"""Rows of the cost page: price, usage and cache saving of each endpoint.

The number of database queries is constant, with one query round to Prometheus. The cost of a shared
cache tier is split among all its users, including those not visible to the viewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from console.accounts.permissions import Somebody, allows
from console.catalogue.core.builtin import Instance
from dashboards.boards.results.board import Message, make_fault_message
from dashboards.costs.formulas.counts import UsageCounts, count_usage
from dashboards.costs.formulas.price_terms import Needs, parse_stored_needs
from dashboards.costs.formulas.savings import NO_L2, TIERS, Costs, Counts, L2Cost, costs, rate
from dashboards.costs.ledger.sums import CostLine
from dashboards.costs.prices import tiers
from dashboards.costs.prices.entry import MissingPrice, list_missing
from dashboards.costs.prices.factors import KnownSlope, known
from dashboards.costs.prices.machines import occupied_machines
from dashboards.models import Calibration
from dashboards.prometheus.http.client import Asker
from endpoints import selectors
from endpoints.models import Endpoint

_READ = (
    *("name", "spec", "team__slug", "team__name"),
    *("status__ready_replicas", "status__worker_hash"),
)
RANGES = {"1h": 3600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400}
DEFAULT_RANGE = "24h"


@dataclass(frozen=True, slots=True)
class EndpointCostRow:
    """Row of the costs by endpoint. `known`: calibration used for the saving; `latest`: the
    endpoint's own latest run; `lent_by`: endpoint of the calibration, if it is another one that the
    viewer may see.
    """

    endpoint: Endpoint
    needs: Needs
    counts: Counts | None
    costs: Costs
    known: KnownSlope | None
    latest: Calibration | None
    lent_by: str = ""

    @property
    def usage(self) -> Counts:
        return self.counts or Counts()

    @property
    def calibration(self) -> Calibration | None:
        return self.known.calibration if self.known else None

    @property
    def stale(self) -> bool:
        """Return whether the workers' settings changed since the calibration."""
        if self.known is None or self.known.lent:
            return False
        return self.known.calibration.settings_hash != self.endpoint.status.worker_hash

    @property
    def cached_tokens(self) -> float | None:
        return sum(self.counts.cached.values()) if self.counts else None

    @property
    def saved_seconds(self) -> float | None:
        """Return the prefill time saved, less the load time; None if not calibrated."""
        saving = self.costs.saving
        return sum(saving.seconds.values()) - saving.load_s if saving and self.counts else None

    @property
    def line(self) -> CostLine:
        """Return the line for report sums."""
        counts, costs, saving = self.usage, self.costs, self.costs.saving
        cached, seconds = sum(counts.cached.values()), counts.worker_s or 0.0
        team = self.endpoint.team
        return CostLine(
            self.endpoint.name,
            team.slug if team else "",
            self.needs.model,
            self.needs.machine,
            self.needs.tags,
            workers_usd=costs.total or 0.0,
            idle_usd=costs.idle or 0.0,
            tier_usd=costs.l2.usd or 0.0,
            l1_usd=costs.l1 or 0.0,
            saved_usd=(saving.usd or 0.0) if saving else 0.0,
            worker_s=seconds,
            unpriced_s=seconds if costs.rate.usd_hour is None else 0.0,
            prompt=counts.prompt or 0.0,
            generated=counts.generated or 0.0,
            requests=counts.requests or 0.0,
            cached=cached,
            unvalued=cached if saving is None or saving.usd is None else 0.0,
        )

    @property
    def usd_hour(self) -> float | None:
        """Return the cost of the workers ready now."""
        each = self.costs.rate.usd_hour
        return None if each is None else each * self.endpoint.status.ready_replicas


Only = Callable[[EndpointCostRow], bool]


def all_endpoint_rows(_row: EndpointCostRow) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class CostReport:
    key: str
    range_s: int
    rows: Sequence[EndpointCostRow]
    fault: Message | None = None
    tags: Sequence[str] = ()
    unpriced: Sequence[MissingPrice] = ()

    @property
    def total(self) -> float | None:
        return _sum([row.costs.total for row in self.rows])

    @property
    def cache_usd(self) -> float | None:
        """Return the known cost of L1 and L2."""
        l1 = [row.costs.l1 for row in self.rows]
        return _sum([*l1, *(row.costs.l2.usd for row in self.rows if row.needs.tier)])

    @property
    def saved(self) -> float | None:
        return _sum([row.costs.saving.usd for row in self.rows if row.costs.saving])

    @property
    def usd_hour(self) -> float | None:
        return _sum([row.usd_hour for row in self.rows])

    @property
    def worker_s(self) -> float | None:
        return _sum([row.usage.worker_s for row in self.rows])

    @property
    def idle_s(self) -> float | None:
        spans = [(row.usage.worker_s, row.usage.busy_s) for row in self.rows]
        return _sum([max(0.0, all_s - (busy or 0.0)) for all_s, busy in spans if all_s])

    @property
    def cached_tokens(self) -> float | None:
        return _sum([row.cached_tokens for row in self.rows])

    @property
    def cached_share(self) -> float | None:
        """Return the cached share of the prompt tokens."""
        prompt = _sum([row.usage.prompt for row in self.rows])
        return (self.cached_tokens or 0.0) / prompt if prompt else None

    @property
    def saved_seconds(self) -> float | None:
        """Return the prefill time saved; None if no endpoint is calibrated."""
        return _sum([row.saved_seconds for row in self.rows])


def report(
    prometheus: Asker, key: str, now: float, viewer: Somebody = None, only: Only = all_endpoint_rows
) -> CostReport:
    key = key if key in RANGES else DEFAULT_RANGE
    counted = count_usage(prometheus, RANGES[key], now)
    fault = counted.fault or counted.missing
    message = make_fault_message(fault) if fault else None
    catalogue = occupied_machines(counted.by_endpoint, RANGES[key])
    rows = _rows(counted, viewer, catalogue, now - RANGES[key], now)
    matching = [row for row in rows if only(row)]
    missing = list_missing(((row.endpoint.name, row.needs) for row in rows), catalogue)
    return CostReport(key, RANGES[key], matching, message, _tag_words(rows), missing)


def _rows(
    counted: UsageCounts,
    viewer: Somebody,
    catalogue: Mapping[str, Instance],
    begin: float,
    end: float,
) -> list[EndpointCostRow]:
    # Only two columns: a status has a dozen texts to decode.
    related = selectors.endpoints(viewer).select_related(None).select_related("status", "team")
    listed = [(row, parse_stored_needs(row.spec)) for row in related.only(*_READ)]
    slopes = known((row.pk, needs) for row, needs in listed)
    latest = latest_runs()
    l2 = _l2(listed, counted, viewer, catalogue, (begin, end))
    names, rows = {row.name for row, _ in listed}, []
    for endpoint, needs in listed:
        counts, measured = counted.by_endpoint.get(endpoint.name), slopes.get(endpoint.pk)
        slope = measured.slope if measured else None
        pays = l2.get(endpoint.name, NO_L2)
        row_costs = costs(rate(needs, catalogue), counts or Counts(), slope, pays)
        if counts is None and counted.fault and row_costs.saving:
            unknown = replace(row_costs.saving, before=None, usd=None, why=_NO_USAGE)
            row_costs = replace(row_costs, saving=unknown)
        other = measured.calibration.endpoint.name if measured and measured.lent else ""
        lent_by = other if other in names else ""
        last = latest.get(endpoint.pk)
        rows.append(EndpointCostRow(endpoint, needs, counts, row_costs, measured, last, lent_by))
    return rows


def _l2(
    listed: Sequence[tuple[Endpoint, Needs]],
    counted: UsageCounts,
    viewer: Somebody,
    catalogue: Mapping[str, Instance],
    between: tuple[float, float],
) -> Mapping[str, L2Cost]:
    if not any(needs.tier for _, needs in listed):
        return {}
    every = [(row.name, needs.tier) for row, needs in listed]
    if viewer is not None and not allows(viewer, "viewer"):
        specs = selectors.endpoints().values_list("name", "spec")
        every = [(name, parse_stored_needs(spec).tier) for name, spec in specs]
    uses = {name: (tier, counted.by_endpoint.get(name, Counts())) for name, tier in every}

    def price(machine: str) -> float | None:
        machine_type = catalogue.get(machine)
        return machine_type.price_usd_hour if machine_type else None

    today = datetime.fromtimestamp(between[1], UTC).date()
    parts = tiers.tier_cost_shares(tiers.rates(catalogue, price, today), uses, *between)
    costs = {name: part.cost for name, part in parts.items()}
    if counted.fault is None:
        return costs
    # Without usage data only a sole user is charged.
    users = Counter(tier for tier, _ in uses.values())
    return {
        name: pays if users[uses[name][0]] == 1 or pays.usd is None else _NOT_SPLIT
        for name, pays in costs.items()
    }


_NO_USAGE = "Usage is unknown while Prometheus is unavailable."
_NOT_SPLIT = L2Cost(None, "Usage of the cache tier is unknown while Prometheus is unavailable.")


def _tag_words(rows: Sequence[EndpointCostRow]) -> Sequence[str]:
    """Return all tags as KEY=VALUE."""
    tag_words = {f"{key}={value}" for row in rows for key, value in row.needs.tags.items()}
    return sorted(tag_words)


def latest_runs() -> dict[Any, Calibration]:
    """Return the latest runs by endpoint id."""
    rows = Calibration.objects.order_by("endpoint_id", "created_at").defer("samples")
    return {row.endpoint_id: row for row in rows}


def _sum(values: list[float | None]) -> float | None:
    """Sum the known values; None if there are none."""
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def _cached_tokens(tier: str, row: EndpointCostRow) -> float | None:
    return row.usage.cached.get(tier)


def _saved_seconds(tier: str, row: EndpointCostRow) -> float | None:
    return row.costs.saving.seconds.get(tier) if row.costs.saving else None


def _why_saved(row: EndpointCostRow) -> str:
    """Return why the saving is unknown, or ""."""
    saving = row.costs.saving
    if saving is None:
        return "Not calibrated: the prefill time per prompt token is unknown."
    return saving.why if saving.usd is None else ""


# Keys of the REST document and, with the range, columns of the CSV. None: not known.
_VALUES: Mapping[str, Callable[[EndpointCostRow], Any]] = {
    "endpoint": lambda row: row.endpoint.name,
    "usd_hour_now": lambda row: row.usd_hour,
    "worker_seconds": lambda row: row.usage.worker_s,
    "cost_usd": lambda row: row.costs.total,
    "idle_usd": lambda row: row.costs.idle,
    "prompt_tokens": lambda row: row.usage.prompt,
    "generated_tokens": lambda row: row.usage.generated,
    "requests": lambda row: row.usage.requests,
    "usd_per_million_input": lambda row: row.costs.per_million_input,
    "usd_per_million_output": lambda row: row.costs.per_million_output,
    "usd_per_million_tokens": lambda row: row.costs.per_million_tokens,
    "usd_per_thousand_requests": lambda row: row.costs.per_thousand_requests,
    **{f"cached_tokens_{tier}": partial(_cached_tokens, tier) for tier in TIERS},
    **{f"saved_seconds_{tier}": partial(_saved_seconds, tier) for tier in TIERS},
    "load_seconds": lambda row: row.costs.saving.load_s if row.costs.saving else None,
    "l1_usd": lambda row: row.costs.l1,
    "l2_usd": lambda row: row.costs.l2.usd,
    "saved_before_cache_usd": lambda row: row.costs.saving.before if row.costs.saving else None,
    "saved_usd": lambda row: row.costs.saving.usd if row.costs.saving else None,
    "seconds_per_token": lambda row: row.known.calibration.seconds_per_token if row.known else None,
    "calibrated_at": lambda row: (
        row.known.calibration.created_at.isoformat() if row.known else None
    ),
    "calibration_stale": lambda row: row.stale,
    "calibration_lent": lambda row: bool(row.known and row.known.lent),
    "simulated": lambda row: row.needs.simulated,
    "team": lambda row: row.endpoint.team.slug if row.endpoint.team else "",
    "tags": lambda row: dict(row.needs.tags),
    "why": lambda row: row.costs.rate.why,
    "why_saved": _why_saved,
    "routers_usd_hour": lambda row: row.costs.rate.routers_usd_hour,
}
COLUMNS = ("endpoint", "range", *tuple(_VALUES)[1:])


def row_values(row: EndpointCostRow) -> dict[str, Any]:
    return {name: value(row) for name, value in _VALUES.items()}
