"""Prices of instance types in use and calibration switches, over REST and the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from console.catalogue.core.builtin import BUILTIN
from console.catalogue.instance_types import INSTANCE_TYPES
from dashboards.calibration_switches import read_switches
from dashboards.costs.formulas.price_terms import THIS_MACHINE
from dashboards.costs.prices.entry import find_offer, list_offers
from tests.console.commandline.test_parser import run
from tests.dashboards.costs.formulas.test_calibration import serving_endpoint
from tests.support.people import Cast, cast, client_of

URL = "/api/v1/costs/prices/"


@pytest.fixture
def people(db: None) -> Cast:
    found = cast()
    serving_endpoint()
    return found


def put(client: Client, name: str, data: Any) -> Any:
    return client.put(f"{URL}{name}/", data, content_type="application/json")


def test_missing_prices_and_their_list_prices(people: Cast) -> None:
    (missing,) = client_of(people.charlie).get(URL).json()
    assert (missing["instance_type"], missing["endpoints"]) == (THIS_MACHINE, ["demo"])
    assert all(one["name"].startswith("m7i.") for one in missing["list_prices"]), "no GPUs here"
    made = put(client_of(people.alice), THIS_MACHINE, {"list_price": "m7i.large"}).json()
    first = datetime.now(UTC).date().replace(day=1)
    assert (made["usd_hour"], made["since"]) == (0.1008, first.isoformat())
    assert client_of(people.charlie).get(URL).json() == []
    again = put(client_of(people.alice), THIS_MACHINE, {"usd_hour": 0.3}).json()
    assert again["since"] == datetime.now(UTC).date().isoformat(), "a change counts from today"


@pytest.mark.parametrize(
    "data", [{}, {"usd_hour": -1}, {"usd_hour": True}, {"list_price": "x"}, {"price": 1}]
)
def test_rejected_prices(people: Cast, data: Any) -> None:
    assert put(client_of(people.alice), THIS_MACHINE, data).status_code == 400
    assert put(client_of(people.charlie), THIS_MACHINE, {"usd_hour": 1}).status_code == 403


def test_type_of_unknown_size(people: Cast) -> None:
    refused = put(client_of(people.alice), "metal.x", {"usd_hour": 1})
    assert refused.status_code == 400
    assert "Add it under Instance types" in refused.content.decode()
    facts = {"vcpus": 8, "memory_gib": 32}
    INSTANCE_TYPES.save(people.alice, "metal.x", facts)
    assert put(client_of(people.alice), "metal.x", {"usd_hour": 1}).status_code == 200


def test_one_price_at_a_time(people: Cast) -> None:
    both = {"usd_hour": 1, "list_price": "m7i.large"}
    refused = put(client_of(people.alice), THIS_MACHINE, both)
    assert (refused.status_code, "not both" in refused.content.decode()) == (400, True)


def test_the_command_line(people: Cast) -> None:
    assert "m7i." in run("price", "list")
    assert "$0.20/h" in run("price", "set", THIS_MACHINE, "0.2")
    assert "All instance types in use have a price" in run("price", "list")
    assert "m7i.large" in run("price", "set", THIS_MACHINE, "--list-price", "m7i.large")
    assert "off" in run("calibration", "auto", "off")
    assert not read_switches().default
    assert "of demo is on" in run("calibration", "auto", "on", "--endpoint", "demo")
    assert "queued (manual" in run("calibration", "start", "demo")
    assert "Waiting" in run("calibration", "get", "demo")


def test_offers_have_the_same_gpus() -> None:
    like = BUILTIN["p5e.48xlarge"]
    assert {BUILTIN[one.name].gpu for one in list_offers(like)} == {like.gpu}
    offer = find_offer("g5.xlarge")
    assert offer is not None
    assert offer.words == "List price of g5.xlarge: EC2, us-east-1, on demand, 2026-11-23"
