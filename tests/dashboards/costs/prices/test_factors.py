"""Cost factors of panels, and the calibration they use."""

from __future__ import annotations

from typing import Any

import pytest

from console.accounts.models import User
from console.catalogue.instance_types import INSTANCE_TYPES
from dashboards.costs.formulas.price_terms import THIS_MACHINE, parse_stored_needs
from dashboards.costs.prices.factors import factors, known
from dashboards.models import Calibration
from endpoints import actions
from endpoints.models import Endpoint
from endpoints.runs import RunState
from endpoints.spec.endpoint_spec import parse
from tests.support.people import cast

PRICE = {"vcpus": 10, "memory_gib": 500, "price_usd_hour": 2.0, "price_date": "2026-11-01"}


def endpoint(name: str, **more: Any) -> Endpoint:
    spec = {"name": name, "model": "smollm2-135m-instruct", "engine": "simulated", **more}
    return actions.create(actions.SYSTEM, spec)


def measured(one: Endpoint, seconds: float, **more: Any) -> Calibration:
    return Calibration.objects.create(
        endpoint=one,
        measured_as=more.pop("measured_as", parse_stored_needs(one.spec).settings),
        state=RunState.DONE,
        seconds_per_token=seconds,
        **more,
    )


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"cache": {"l1": {"enabled": False}, "l2": {"enabled": True, "tier": "warm"}}},
        {"cache": {"l2": {"enabled": True, "backend": "redis", "url": "redis://r:6379"}}},
        {"resources": {"gpus": 2}, "tags": {"app": "search"}},
        {
            "placement": {"cluster": "east", "instance_types": ["g5.xlarge", "p5.48xlarge"]},
            "pod": {"resources": {"limits": {"nvidia.com/gpu": "4"}}},
        },
    ],
)
def test_stored_spec_equals_a_parsed_one(data: dict[str, Any]) -> None:
    spec = parse({"name": "chat", "model": "org/model", **data})
    stored = {"name": "chat", "model": "org/model", **data}
    assert parse_stored_needs(stored) == parse_stored_needs(spec.to_dict())


def test_settings_hash_covers_what_prefill_depends_on() -> None:
    def settings(**more: Any) -> str:
        return parse_stored_needs({"name": "a", "model": "org/model", **more}).settings

    same = settings()
    assert settings(name="b", replicas=4, cache={"l1": {"size_gib": 9}}) == same
    for change in ({"model": "x"}, {"worker_args": ["-tp", "2"]}, {"resources": {"gpus": 1}}):
        assert settings(**change) != same


def test_foreign_tier_is_named_without_its_password() -> None:
    l2 = {"enabled": True, "backend": "redis", "url": "rediss://me:secret@r:6379/1"}
    assert (
        parse_stored_needs({"name": "a", "model": "m", "cache": {"l2": l2}}).tier == "redis:r:6379"
    )


@pytest.mark.django_db
def test_prices_and_savings_by_endpoint() -> None:
    people = cast()
    one, two = endpoint("one"), endpoint("two", worker_args=["--max-num-seqs", "4"])
    assert factors() == {"worker_usd_hour": {}, "saved_usd_token": {}}
    INSTANCE_TYPES.save(people.alice, THIS_MACHINE, PRICE)
    measured(one, 0.003)
    found = factors(people.charlie)
    assert found["worker_usd_hour"] == pytest.approx({"one": 0.2, "two": 0.2})
    assert found["saved_usd_token"] == pytest.approx({"one": 0.003 * 0.2 / 3600})
    measured(two, 0.002)
    assert set(factors()["saved_usd_token"]) == {"one", "two"}
    nobody = User.objects.create_user("eve", password="x", role="member")
    assert factors(nobody) == {"worker_usd_hour": {}, "saved_usd_token": {}}


@pytest.mark.django_db
def test_calibration_is_reused_for_equal_endpoints() -> None:
    cast()
    one, like = endpoint("one"), endpoint("like")
    other = endpoint("other", worker_args=["--max-num-seqs", "4"])
    made = measured(one, 0.003)
    requested = [(row.pk, parse_stored_needs(row.spec)) for row in (one, like, other)]
    found = known(requested)
    assert (found[one.pk].calibration, found[one.pk].lent) == (made, False)
    assert (found[like.pk].calibration, found[like.pk].lent) == (made, True)
    assert other.pk not in found
    old = measured(like, 0.009, measured_as="other-settings")
    assert known(requested)[like.pk].calibration == made, "its own is of other settings"
    Calibration.objects.filter(pk=made.pk).delete()
    assert known(requested)[like.pk].calibration == old, "better than none"
