"""Two days in a real Prometheus: hourly sums equal values computed from the samples.

Includes an outage of the console and one of Prometheus (two hours), a deleted endpoint, a removed
and a restarted worker, changed prices and a late calibration.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import date, datetime
from functools import cache

import pytest

from console.catalogue.instance_types import INSTANCE_TYPES
from dashboards.costs import actions
from dashboards.costs.formulas.price_terms import THIS_MACHINE, parse_stored_needs
from dashboards.costs.ledger import hours, months, sums
from dashboards.costs.models import CostDay
from dashboards.costs.reports import monthly
from dashboards.models import Calibration
from dashboards.prometheus.http.client import Prometheus
from endpoints.models import Endpoint
from endpoints.runs import RunState
from tests.dashboards.costs.conftest import PRICE
from tests.dashboards.costs.prices.test_factors import endpoint
from tests.dashboards.costs.samples import AWAY, BEGIN, HOUR_S, HOURS, Pod, Samples, hour, scraped
from tests.support.people import Cast
from tests.support.prometheus import PROMTOOL, running_prometheus

SOURCE = "vllm:prompt_tokens_cached_by_source_total"
COMPUTED = "emberline_router_computed_prompt_tokens_total"
CACHED = "emberline_router_cached_prompt_tokens_total"
GENERATED = "emberline_router_completion_tokens_total"
REQUESTS, LOAD = "emberline_router_requests_total", "vllm:kv_offload_load_time_total"
DEVICE, EXTERNAL = "vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total"
READ = "vllm:kv_offload_tiering_read_bytes_total"
SLOPE, TIER_USD, TIER = 0.004, 0.12, "redis:r:6379"
PRICES = {date(2026, 11, 8): 2.0, date(2026, 11, 9): 2.0, date(2026, 11, 10): 3.0}
CPU_PART = 0.1
CLOSE = 0.01
"""What scrapes a minute apart and the edges of hours leave open."""


def new(scale: float) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Increases a second of vLLM 0.32's counters, and of the router's for this worker."""
    return {
        (COMPUTED, ()): 40 * scale,
        (CACHED, ()): 60 * scale,
        (GENERATED, ()): 20 * scale,
        (REQUESTS, (("code", "200"),)): 0.5 * scale,
        (COMPUTED, (("traffic", "console"),)): 999.0,
        (LOAD, ()): 0.01 * scale,
        (SOURCE, (("source", "device"),)): 30 * scale,
        (SOURCE, (("source", "host"),)): 20 * scale,
        (SOURCE, (("source", "disk"),)): 10 * scale,
        (READ, (("tier", "1:fs"),)): 4096 * scale,
    }


OLD = {
    (COMPUTED, ()): 40.0,
    (CACHED, ()): 40.0,
    (GENERATED, ()): 9.0,
    (DEVICE, ()): 30.0,
    (EXTERNAL, ()): 10.0,
}
# Never read from disk: hits beyond the device were in L1, and are exported as such.
HOST = {
    (COMPUTED, ()): 30.0,
    (CACHED, ()): 20.0,
    (SOURCE, (("source", "host"),)): 20.0,
    (EXTERNAL, ()): 20.0,
}


@cache
def samples() -> Samples:
    return scraped(
        [
            Pod("one", "one-0", new(1.0), restarts=(5, 20)),
            Pod("one", "one-1", new(2.0), until=21),
            Pod("two", "two-0", new(3.0)),
            Pod("old", "old-0", OLD),
            Pod("gone", "gone-0", HOST, until=10),
        ]
    )


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tsdb")
    text = folder / "days.om"
    text.write_text(samples().text)
    command = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", text, folder / "data"]
    subprocess.run(command, check=True, capture_output=True)
    with running_prometheus(folder, "scrape_configs: []\n") as url:
        yield url


@pytest.fixture
def added(prometheus: str, people: Cast) -> datetime:
    """After all hours were added and late prices entered."""
    price = {**PRICE, "price_usd_hour": 2.0, "price_date": "2026-11-01"}
    INSTANCE_TYPES.save(people.alice, THIS_MACHINE, price)
    redis = {"cache": {"l2": {"enabled": True, "backend": "redis", "url": f"redis://{TIER[6:]}"}}}
    made = {name: endpoint(name, **more) for name, more in (("one", redis), ("two", redis))}
    made |= {name: endpoint(name) for name in ("old", "gone")}
    Endpoint.objects.update(created_at=BEGIN, changed_at=BEGIN)
    asker = Prometheus(prometheus)
    assert hours.measure_hours(asker, hour(8) + hours.SETTLED) == 8
    Endpoint.objects.filter(name="gone").delete()
    # The console was down until now: more hours than one pass queries.
    now = hour(HOURS) + hours.SETTLED
    assert (hours.measure_hours(asker, now), hours.measure_hours(asker, now)) == (
        24,
        HOURS - 8 - 24,
    )
    assert hours.measure_hours(asker, now) == 0
    INSTANCE_TYPES.save(
        people.alice, THIS_MACHINE, {**PRICE, "price_usd_hour": 3.0, "price_date": "2026-11-10"}
    )
    actions.save_tier_price(people.alice, TIER, {"usd_hour": TIER_USD, "since": "2026-11-09"})
    Calibration.objects.create(
        endpoint=made["one"],
        measured_as=parse_stored_needs(made["one"].spec).settings,
        state=RunState.DONE,
        seconds_per_token=SLOPE,
    )
    hours.revalue(now.date())
    return now


def truth(name: str, tier_part: dict[int, float]) -> dict[str, float]:
    """Return an endpoint's values computed from the samples.

    `spared_usd` and `tier_usd` cover days with a tier price; tokens of the others are `unvalued`,
    their hours `unpriced_tier_h`.
    """
    found: dict[str, float] = {}
    for number in range(HOURS):
        begin = int(hour(number).timestamp())
        day, between = hour(number).date(), (begin, begin + HOUR_S)
        usd_s = PRICES[day] * CPU_PART / HOUR_S
        there = samples().seen_s("up", name, *between, lambda _value: True)
        busy = samples().seen_s(
            "vllm:num_requests_running", name, *between, lambda value: value > 0
        )
        cached = samples().grown(CACHED, name, *between)
        computed = samples().grown(COMPUTED, name, *between, traffic="")
        part, priced = tier_part.get(number, 0.0), day > BEGIN.date()
        spared_s = cached * SLOPE - samples().grown(LOAD, name, *between)
        known = priced or not tier_part
        more = {
            "worker_s": there,
            "prompt": cached + computed,
            "generated": samples().grown(GENERATED, name, *between),
            "requests": samples().grown(REQUESTS, name, *between),
            "cached": cached,
            "workers_usd": there * usd_s,
            "idle_usd": (there - busy) * usd_s,
            "spared_usd": spared_s * usd_s if known else 0.0,
            "unvalued": 0.0 if known else cached,
            "tier_usd": part * TIER_USD if priced else 0.0,
            "unpriced_tier_h": 0.0 if priced else part,
        }
        found = {what: found.get(what, 0.0) + each for what, each in more.items()}
    return found


def tier_parts() -> dict[str, dict[int, float]]:
    """Return the shares by bytes read, equal without reads."""
    parts: dict[str, dict[int, float]] = {"one": {}, "two": {}}
    for number in range(HOURS):
        begin = int(hour(number).timestamp())
        read = {name: samples().grown(READ, name, begin, begin + HOUR_S) for name in parts}
        whole = sum(read.values())
        for name, each in read.items():
            parts[name][number] = each / whole if whole else 0.5
    return parts


def lines() -> dict[str, sums.CostLine]:
    rows = CostDay.objects.filter(day__gte=BEGIN.date(), day__lte=hour(HOURS).date())
    return {line.name: line for line in sums.group_lines(sums.by_endpoint(rows), "endpoint")}


def test_daily_sums_follow_their_samples(added: datetime) -> None:
    parts, found = tier_parts(), lines()
    assert set(found) == {"one", "two", "old", "gone"}
    for name, line in found.items():
        net = line.saved_usd + line.l1_usd + line.tier_usd
        value = truth(name, parts.get(name, {}))
        seen = {what: net if what == "spared_usd" else getattr(line, what) for what in value}
        assert seen == pytest.approx(value, rel=CLOSE), name
    month = monthly.report(months.month_of(BEGIN), added, None)
    assert month.coverage.queried == month.coverage.due == HOURS
    assert month.coverage.scraped == pytest.approx(HOURS - len(AWAY), abs=0.2)
    assert "5.4% of the hours so far were not measured" in month.partial
    unpriced = sum(line.unpriced_tier_h for line in found.values())
    assert unpriced == pytest.approx(6), "before the tier had a price"
    assert "of the cache tier time has no price" in month.partial
