"""Candidates of a survey."""

from __future__ import annotations

from dataclasses import replace

from dashboards.insight.advisor.formulas.candidates import changed_fields, list_candidates
from tests.dashboards.insight.advisor.surveyed import PRESENT, options


def test_l2_is_never_without_l1() -> None:
    present = {**PRESENT, "l1_gib": 8.0, "l2_gib": 32.0}
    for values in (PRESENT, present):
        for one in list_candidates(values, options()):
            assert one["l1_gib"] or not one["l2_gib"]
    changes = [changed_fields(present, one) for one in list_candidates(present, options())]
    assert {"l1_gib": 16.0} in changes
    assert {"l1_gib": 0.0, "l2_gib": 0.0} in changes


def test_workers_with_l1_have_its_price() -> None:
    found = list_candidates(PRESENT, options())
    prices = {one["l1_gib"]: one["price_usd_hour"] for one in found}
    assert len(prices) == 3
    for size, price in prices.items():
        assert price == 4.0 + size / 100


def test_what_has_its_own_control_is_left_out() -> None:
    fixed = replace(options(), replicas=False, l2=False)
    for one in list_candidates({**PRESENT, "l2_gib": 10.0, "l1_gib": 1.0}, fixed):
        assert (one["replicas"], one["l2_gib"]) == (3, 10.0)
    assert not [
        one
        for one in list_candidates({**PRESENT, "kv_kib": None}, options())
        if one["l1_gib"] or one["l2_gib"]
    ]


def test_a_single_worker_is_never_removed() -> None:
    found = list_candidates({**PRESENT, "replicas": 1}, options())
    assert {one["replicas"] for one in found} == {1, 2, 3}
