"""Costs and savings by hand-made numbers, and silence where a term is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.catalogue.builtin import BUILTIN, GIB, Instance
from dashboards.cost.formulas import Counts, Rate, Share, Slope, costs, per_day
from dashboards.cost.needs import THIS_MACHINE, needs
from dashboards.cost.rates import rate
from endpoints.spec import parse

DAY = 86_400.0
COUNTS = Counts(
    worker_s=2 * DAY,
    busy_s=0.5 * DAY,
    prompt=40e6,
    generated=10e6,
    requests=20_000,
    cached={"device": 10e6, "l1": 5e6, "l2": 1e6},
    load_s=1000.0,
)


def test_a_day_of_two_workers() -> None:
    found = costs(Rate(3.0), COUNTS, Slope(0.0002))
    assert found.total == pytest.approx(144.0)
    assert found.idle == pytest.approx(108.0)
    assert found.per_million_input == pytest.approx(3.6)
    assert found.per_million_output == pytest.approx(14.4)
    assert found.per_million_tokens == pytest.approx(2.88)
    assert found.per_thousand_requests == pytest.approx(7.2)
    assert found.saving is not None
    assert found.saving.seconds == pytest.approx({"device": 2000, "l1": 1000, "l2": 200})
    assert found.saving.usd == pytest.approx((3200 - 1000) / 3600 * 3.0)


def test_a_cache_that_costs_more_than_it_saves_is_negative() -> None:
    found = costs(Rate(3.0), replace(COUNTS, load_s=5000.0), Slope(0.0002))
    assert found.saving is not None
    assert found.saving.usd == pytest.approx(-1.5)


def test_what_is_not_known_is_not_there() -> None:
    unknown = costs(Rate(None, "no price"), COUNTS, Slope(0.0002))
    assert unknown.total is unknown.idle is unknown.per_million_tokens is None
    assert unknown.saving is not None
    assert (unknown.saving.usd, unknown.saving.why) == (None, "no price")
    assert unknown.saving.seconds["device"] == 2000, "seconds need no price"
    assert costs(Rate(3.0), Counts(), None).total is None
    assert costs(Rate(3.0), COUNTS, None).saving is None
    still = costs(Rate(3.0), replace(COUNTS, prompt=0.0, generated=0.0, requests=0.0), None)
    assert still.total == pytest.approx(144.0)
    assert still.per_million_tokens is still.per_thousand_requests is None


def test_more_busy_than_there_is_no_negative_idleness() -> None:
    assert costs(Rate(3.0), replace(COUNTS, busy_s=3 * DAY), None).idle == 0.0


def test_by_day() -> None:
    assert per_day(7.0, 7 * DAY) == pytest.approx(1.0)
    assert per_day(None, DAY) is None


def test_a_share_by_gpus_or_by_what_is_scarcer() -> None:
    assert Share(1, 4, 48, 48, 0, 1).part == 0.25, "GPUs are what a machine is for"
    assert Share(0, 0, 2, 8, GIB, 16 * GIB).part == 0.25
    assert Share(0, 0, 1, 8, 8 * GIB, 16 * GIB).part == 0.5


BASE = {"name": "chat", "model": "org/model", "resources": {"gpus": 1}}


def on(*types: str, cluster: str = "east") -> dict[str, object]:
    return {**BASE, "placement": {"cluster": cluster, "instance_types": list(types)}}


def test_the_price_of_one_worker() -> None:
    found = rate(needs(parse(on("ml.g5.12xlarge", "ml.p5.48xlarge"))), BUILTIN)
    assert found.usd_hour == pytest.approx(7.09 / 4)
    assert found.words == "7.09 USD an hour for ml.g5.12xlarge x 1 of 4 GPUs"


@pytest.mark.parametrize(
    ("placement", "says"),
    [
        ((), "Name the instance type"),
        (("metal.x",), "No instance type metal.x"),
        (("g5.xlarge",), "The price of g5.xlarge is not known"),
    ],
)
def test_an_unknown_price_says_what_would_make_it_known(
    placement: tuple[str, ...], says: str
) -> None:
    found = rate(needs(parse(on(*placement))), BUILTIN)
    assert found.usd_hour is None
    assert says in found.why


def test_workers_of_this_machine_have_a_price_once_somebody_gives_it() -> None:
    spec = needs(parse({**BASE, "resources": {"cpus": 2, "memory_gib": 4, "gpus": 0}}))
    assert THIS_MACHINE in rate(spec, BUILTIN).why
    mine = Instance(THIS_MACHINE, 8, 32 * GIB, price_usd_hour=0.4)
    assert rate(spec, {THIS_MACHINE: mine}).usd_hour == pytest.approx(0.1)
