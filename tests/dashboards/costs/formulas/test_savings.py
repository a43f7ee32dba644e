"""Costs and savings of example values, and None where a term is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.catalogue.core.builtin import BUILTIN, GIB, Instance
from dashboards.costs.formulas.price_terms import THIS_MACHINE, Needs, parse_stored_needs
from dashboards.costs.formulas.savings import Counts, L2Cost, Rate, Share, costs, rate, split_shares
from endpoints.spec.endpoint_spec import DEFAULT_ROUTERS, EndpointSpec, parse

DAY = 86_400.0
COUNTS = Counts(
    worker_s=2 * DAY,
    busy_s=0.5 * DAY,
    prefill_s=0.1 * DAY,
    decode_s=0.4 * DAY,
    prompt=40e6,
    generated=10e6,
    requests=20_000,
    cached={"device": 10e6, "l1": 5e6, "l2": 1e6},
    load_s=1000.0,
)


def test_costs_of_one_day_with_two_workers() -> None:
    found = costs(Rate(3.0), COUNTS, 0.0002)
    assert found.total == pytest.approx(144.0)
    assert found.idle == pytest.approx(108.0)
    assert found.per_million_input == pytest.approx(0.2 * 144.0 / 40)
    assert found.per_million_output == pytest.approx(0.8 * 144.0 / 10)
    assert found.per_million_tokens == pytest.approx(2.88)
    assert found.per_thousand_requests == pytest.approx(7.2)
    assert found.saving is not None
    assert found.saving.seconds == pytest.approx({"device": 2000, "l1": 1000, "l2": 200})
    assert found.saving.usd == pytest.approx((3200 - 1000) / 3600 * 3.0)


def test_input_and_output_together_cost_what_the_workers_cost() -> None:
    found = costs(Rate(3.0), COUNTS, None)
    assert found.per_million_input is not None and found.per_million_output is not None
    assert found.per_million_input * 40 + found.per_million_output * 10 == pytest.approx(144.0)
    without = costs(Rate(3.0), replace(COUNTS, decode_s=None), None)
    assert without.per_million_input is without.per_million_output is None


def test_cache_that_costs_more_than_it_saves_is_negative() -> None:
    found = costs(Rate(3.0), replace(COUNTS, load_s=5000.0), 0.0002)
    assert found.saving is not None
    assert found.saving.usd == pytest.approx(-1.5)


def test_unknown_values_are_absent() -> None:
    unknown = costs(Rate(None, "no price"), COUNTS, 0.0002)
    assert unknown.total is unknown.idle is unknown.per_million_tokens is None
    assert unknown.saving is not None
    assert (unknown.saving.usd, unknown.saving.why) == (None, "no price")
    assert unknown.saving.seconds["device"] == 2000, "seconds need no price"
    assert costs(Rate(3.0), Counts(), None).total is None
    assert costs(Rate(3.0), COUNTS, None).saving is None
    still = costs(Rate(3.0), replace(COUNTS, prompt=0.0, generated=0.0, requests=0.0), None)
    assert still.total == pytest.approx(144.0)
    assert still.per_million_tokens is still.per_thousand_requests is None


def test_cache_costs_reduce_the_savings() -> None:
    rate = Rate(3.0, l1_usd_hour=0.01)
    found = costs(rate, COUNTS, 0.0002, L2Cost(1.0)).saving
    assert found is not None
    before = (3200 - 1000) / 3600 * 3.0
    assert found.before == pytest.approx(before)
    assert found.l1_usd == pytest.approx(0.48)
    assert found.usd == pytest.approx(before - 0.48 - 1.0)
    unknown = costs(rate, COUNTS, 0.0002, L2Cost(None, "say it")).saving
    assert unknown is not None
    assert (unknown.before, unknown.usd, unknown.why) == (found.before, None, "say it")


def test_l1_costs_its_additional_memory_share() -> None:
    assert Share(1, 4, 1, 48, 90, 100, l1_bytes=50).l1_part == 0.0, "it comes with the GPUs"
    assert Share(0, 0, 1, 10, 80, 100, l1_bytes=50).l1_part == pytest.approx(0.5)
    assert Share(0, 0, 5, 10, 60, 100, l1_bytes=50).l1_part == pytest.approx(0.1)
    assert Share(0, 0, 9, 10, 60, 100, l1_bytes=50).l1_part == 0.0, "processors are scarcer"


def test_tier_costs_are_shared_by_bytes_then_tokens_then_equally() -> None:
    def used(tokens: float, read: float | None) -> Counts:
        return Counts(cached={"l2": tokens}, l2_bytes=read)

    assert split_shares({"a": used(10, 300), "b": used(10, 100)}) == {"a": 0.75, "b": 0.25}
    assert split_shares({"a": used(10, None), "b": used(30, 100)}) == {"a": 0.25, "b": 0.75}
    assert split_shares({"a": used(0, None), "b": used(5, 100)}) == {"a": 0.0, "b": 1.0}
    assert split_shares({"a": used(0, 0), "b": used(0, None)}) == {"a": 0.5, "b": 0.5}


def test_excess_busy_time_gives_no_negative_idle_time() -> None:
    assert costs(Rate(3.0), replace(COUNTS, busy_s=3 * DAY), None).idle == 0.0


def test_share_is_by_gpus_or_by_the_scarcest_resource() -> None:
    assert Share(1, 4, 48, 48, 0, 1).part == 0.25, "GPUs are what a machine is for"
    assert Share(0, 0, 2, 8, GIB, 16 * GIB).part == 0.25
    assert Share(0, 0, 1, 8, 8 * GIB, 16 * GIB).part == 0.5


BASE = {"name": "chat", "model": "org/model", "resources": {"gpus": 1}}


def on(*types: str, cluster: str = "east") -> dict[str, object]:
    return {**BASE, "placement": {"cluster": cluster, "instance_types": list(types)}}


def needs(spec: EndpointSpec) -> Needs:
    return parse_stored_needs(spec.to_dict())


def test_endpoints_with_other_weights_of_one_name_share_no_calibration() -> None:
    plain = on("ml.g5.12xlarge")
    sources: list[dict[str, str]] = [
        {},
        {"type": "huggingface", "location": "org/other"},
        {"type": "s3", "bucket": "models", "location": "a"},
        {"type": "s3", "bucket": "models", "location": "b"},
        {"type": "pvc", "claim": "weights"},
    ]
    settings = [needs(parse({**plain, "source": source})).settings for source in sources]
    assert len(set(settings)) == len(sources)
    assert needs(parse({**plain, "source": {"type": "huggingface"}})).settings == settings[0]


def test_the_price_of_one_worker() -> None:
    found = rate(needs(parse(on("ml.g5.12xlarge", "ml.p5.48xlarge"))), BUILTIN)
    assert found.usd_hour == pytest.approx(7.09 / 4)
    assert found.words == "$7.09/h for ml.g5.12xlarge × 1 of 4 GPUs"


def test_router_price_is_listed_beside_the_worker_price() -> None:
    spec = {**on("ml.g5.12xlarge"), "router": {"replicas": 3, "cpus": 1.6, "memory_gib": 1}}
    found = rate(needs(parse(spec)), BUILTIN)
    assert found.usd_hour == pytest.approx(7.09 / 4), "not in what a worker costs"
    assert found.routers_usd_hour == pytest.approx(7.09 * 3 * 1.6 / 48)
    assert needs(parse(on("ml.g5.12xlarge"))).routers == DEFAULT_ROUTERS == 2
    local = needs(parse({**BASE, "resources": {"cpus": 2, "gpus": 0}}))
    assert local.routers == 0, "on this machine they run anyway"


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ((), "No instance type is set"),
        (("metal.x",), "metal.x has no price"),
        (("p5e.48xlarge",), "p5e.48xlarge has no price"),
    ],
)
def test_unknown_price_states_its_remedy(placement: tuple[str, ...], message: str) -> None:
    found = rate(needs(parse(on(*placement))), BUILTIN)
    assert found.usd_hour is None
    assert message in found.why


def test_local_workers_have_a_price_once_it_is_set() -> None:
    spec = needs(parse({**BASE, "resources": {"cpus": 2, "memory_gib": 4, "gpus": 0}}))
    assert rate(spec, BUILTIN).why == "This machine has no price (USD/h)."
    mine = Instance(THIS_MACHINE, 8, 32 * GIB, price_usd_hour=0.4)
    assert rate(spec, {THIS_MACHINE: mine}).usd_hour == pytest.approx(0.1)
