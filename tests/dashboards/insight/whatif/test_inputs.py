"""Tests of the values of an analysis."""

from __future__ import annotations

import pytest

from console.catalogue.instance_types import INSTANCE_TYPES
from console.core.errors import Refused
from dashboards.costs.formulas.price_terms import THIS_MACHINE
from dashboards.insight.misses.report import worker_price
from dashboards.insight.whatif import inputs
from dashboards.insight.whatif.inputs import EngineLimits
from endpoints.models import Endpoint
from tests.support.console import make_endpoint, person


def test_present_values_come_from_the_spec(endpoint: Endpoint) -> None:
    found = inputs.present_values(endpoint)
    assert set(found) == {field.name for field in inputs.FIELDS}
    assert (found["strategy"], found["replicas"], found["routers"]) == ("prefixaware", 3, 1)
    assert found["l1_gib"] == found["l2_gib"] == 0
    assert found["price_usd_hour"] is None
    endpoint.status.wanted_replicas = 7
    assert inputs.present_values(endpoint)["replicas"] == 7, "the autoscaler's"
    limited = make_endpoint("flags", worker_args=["--max-num-seqs=8", "--speed=2"])
    assert inputs.engine_limits(limited.parsed).max_requests == 8


def test_given_values_replace_present_ones(endpoint: Endpoint) -> None:
    present = inputs.present_values(endpoint)
    found = inputs.read_values({"replicas": "5", "rate": 2, "price_usd_hour": ""}, present)
    assert (found["replicas"], found["rate"], found["price_usd_hour"]) == (5, 2.0, None)
    assert [one[0] for one in inputs.list_changes(present, found)] == [
        "Replicas",
        "Request rate (× recorded)",
    ]


@pytest.mark.parametrize(
    ("given", "field", "remedy"),
    [
        ({"replicas": 0}, "replicas", "Use a whole number from 1 to 256."),
        ({"replicas": 1.5}, "replicas", "Use a whole number from 1 to 256."),
        ({"replicas": True}, "replicas", "Use a whole number from 1 to 256."),
        ({"replicas": ""}, "replicas", "Use a whole number from 1 to 256."),
        ({"rate": "nan"}, "rate", "Use a number from 0.1 to 20."),
        ({"rate": [1]}, "rate", "Use a number from 0.1 to 20."),
        ({"strategy": "random"}, "strategy", "Use one of"),
        ({"color": 1}, "color", "Known fields: strategy,"),
        ({"l1_gib": 4, "kv_kib": ""}, "kv_kib", "set the L1 size to 0"),
    ],
)
def test_nonsense_names_field_and_remedy(
    endpoint: Endpoint, given: dict[str, object], field: str, remedy: str
) -> None:
    with pytest.raises(Refused) as refused:
        inputs.read_values(given, inputs.present_values(endpoint))
    (problem,) = refused.value.errors
    assert problem.field == field
    assert remedy in problem.remedy


def test_isolation_weaker_than_recorded_names_those_that_can_be_chosen(endpoint: Endpoint) -> None:
    present = inputs.present_values(endpoint) | {"isolation": "key"}
    with pytest.raises(Refused) as refused:
        inputs.read_values({"isolation": "group"}, present)
    assert refused.value.errors[0].remedy.startswith("Set 'group' on the endpoint")
    with pytest.raises(Refused) as refused:
        inputs.read_values({"isolation": "shared"}, present | {"isolation": "group"})
    assert refused.value.errors[0].remedy.startswith("Choose 'key', or set 'shared'")


def test_price_is_that_of_the_costs(endpoint: Endpoint) -> None:
    price = {"vcpus": 4, "memory_gib": 16, "price_usd_hour": 0.4, "price_date": "2026-01-01"}
    INSTANCE_TYPES.save(person("admin"), THIS_MACHINE, price)
    found = inputs.present_values(endpoint)["price_usd_hour"]
    assert found is not None and found == worker_price(endpoint)


def test_gib_become_tokens(endpoint: Endpoint) -> None:
    given = {"l1_gib": 1, "kv_kib": 64, "l2_gib": 2, "l2_policy": "arc", "device_tokens": ""}
    values = inputs.read_values(given, inputs.present_values(endpoint))
    found = inputs.make_configuration(values, EngineLimits(2048, 16))
    assert (found.l1_tokens, found.l2_tokens, found.l2_policy) == (16384, 32768, "arc")
    assert (found.device_tokens, found.step_tokens, found.max_requests) == (0, 2048, 16)
