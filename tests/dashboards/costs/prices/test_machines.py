"""The price of this machine is shared by what runs on it, and never exceeded."""

from __future__ import annotations

import pytest

from console.catalogue.instance_types import INSTANCE_TYPES
from dashboards.costs.formulas.price_terms import THIS_MACHINE, parse_stored_needs
from dashboards.costs.formulas.savings import Counts, rate
from dashboards.costs.prices.machines import occupied_machines
from endpoints.models import Endpoint, EndpointStatus
from tests.dashboards.costs.conftest import PRICE, made
from tests.support.people import Cast


def usd_hour(machines: dict[str, object], row: Endpoint) -> float:
    each = rate(parse_stored_needs(row.spec), machines).usd_hour  # type: ignore[arg-type]
    assert each is not None
    return each


def run(row: Endpoint, workers: int) -> None:
    EndpointStatus.objects.filter(endpoint=row).update(ready_replicas=workers)


def test_workers_pay_their_share_while_the_machine_has_room(one: Endpoint) -> None:
    run(one, 10)
    assert usd_hour(occupied_machines(), one) == pytest.approx(0.2)


@pytest.mark.parametrize("workers", [11, 25])
def test_workers_of_all_endpoints_share_an_over_allocated_machine(
    one: Endpoint, workers: int
) -> None:
    run(one, workers)
    other = made("other")
    run(other, 5)
    each = usd_hour(occupied_machines(), one)
    assert each * (workers + 5) == pytest.approx(2.0)
    assert usd_hour(occupied_machines(), other) == pytest.approx(each)


def test_a_range_with_more_workers_than_now_is_shared_by_them(one: Endpoint) -> None:
    run(one, 1)
    machines = occupied_machines({"one": Counts(worker_s=20 * 3600.0)}, 3600.0)
    assert usd_hour(machines, one) * 20 == pytest.approx(2.0)
    assert "over-allocated" in rate(parse_stored_needs(one.spec), machines).words


def test_machine_without_a_price_is_left_alone(people: Cast) -> None:
    made("one")
    assert THIS_MACHINE not in occupied_machines()
    INSTANCE_TYPES.save(people.alice, THIS_MACHINE, PRICE)
    assert occupied_machines()[THIS_MACHINE].occupancy == 1
