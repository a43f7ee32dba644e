"""Tier spec: each error names field, value and remedy, all at once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from cachetier.engine.policies import DEFAULT_POLICY, POLICIES
from cachetier.tier import spec
from cachetier.tier.spec import (
    GIB,
    MIB,
    Effect,
    Refused,
    SpareCapacity,
    TierSpec,
    change_spec,
    create_spec,
)

ROOM = SpareCapacity(memory_bytes=8 * GIB, disk_bytes=100 * GIB)
SMALL = TierSpec(memory_bytes=GIB)


def test_fields_match_the_spec_and_policies_match_the_engine() -> None:
    assert {one.name for one in spec.FIELDS} == {one.name for one in fields(TierSpec)}
    assert set(spec.POLICIES) == set(POLICIES)
    assert TierSpec().policy == DEFAULT_POLICY


def test_omitted_fields_stay() -> None:
    wanted = change_spec(SMALL, {"node_count": 3, "copies": 2}, ROOM)
    assert wanted == TierSpec(memory_bytes=GIB, node_count=3, copies=2)
    assert spec.list_changes(SMALL, wanted) == {"node_count": [1, 3], "copies": [1, 2]}
    assert spec.list_effects(spec.list_changes(SMALL, wanted)) == {Effect.LIVE, Effect.WORKERS}


@pytest.mark.parametrize(
    ("data", "field", "code"),
    [
        ({"memory_bytes": 64 * MIB - 1}, "memory_bytes", "min_value"),
        ({"memory_bytes": 9 * GIB}, "memory_bytes", "max_value"),
        ({"memory_bytes": 3 * GIB, "node_count": 3}, "memory_bytes", "max_value"),
        ({"memory_bytes": "4GiB"}, "memory_bytes", "type"),
        ({"memory_bytes": True}, "memory_bytes", "type"),
        ({"memory_bytes": 1.5}, "memory_bytes", "type"),
        ({"memory_bytes": None}, "memory_bytes", "type"),
        ({"node_count": 0}, "node_count", "min_value"),
        ({"node_count": 17}, "node_count", "max_value"),
        ({"copies": 2}, "copies", "too_few_nodes"),
        ({"copies": 3, "node_count": 4}, "copies", "max_value"),
        ({"disk_bytes": 1}, "disk_bytes", "min_value"),
        ({"disk_bytes": -1}, "disk_bytes", "min_value"),
        ({"disk_bytes": 101 * GIB}, "disk_bytes", "max_value"),
        ({"policy": "fifo"}, "policy", "invalid_choice"),
        ({"policy": ["lru"]}, "policy", "invalid_choice"),
        ({"colour": "red"}, "colour", "unknown_field"),
    ],
)
def test_invalid_specs(data: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(Refused) as caught:
        change_spec(SMALL, data, ROOM)
    (problem,) = caught.value.errors
    assert (problem.field, problem.code) == (field, code)
    assert problem.value == data[field]
    assert problem.remedy


CLUSTERS = SpareCapacity(memory_bytes=GIB, disk_bytes=GIB, clusters=frozenset({"prod"}))


def test_capacity_of_a_cluster_is_left_to_the_scheduler() -> None:
    data = {"cluster": "prod", "memory_bytes": 100 * GIB, "disk_bytes": 999 * GIB}
    assert create_spec(data, CLUSTERS).memory_bytes == 100 * GIB
    with pytest.raises(Refused):
        create_spec({**data, "cluster": ""}, CLUSTERS)


@pytest.mark.parametrize(
    ("data", "field", "code"),
    [
        ({"cluster": "test"}, "cluster", "unknown_cluster"),
        ({"cluster": "Prod!"}, "cluster", "invalid_name"),
        ({"cluster": 7}, "cluster", "invalid_name"),
        ({"namespace": "llm"}, "namespace", "cluster_only"),
        ({"storage_class": "fast"}, "storage_class", "cluster_only"),
        ({"cpu_millis": 500}, "cpu_millis", "cluster_only"),
        ({"cpu_limit_millis": 500}, "cpu_limit_millis", "cluster_only"),
        ({"memory_limit_bytes": 4 * GIB}, "memory_limit_bytes", "cluster_only"),
        ({"cluster": "prod", "cpu_millis": 9}, "cpu_millis", "min_value"),
        ({"cluster": "prod", "cpu_millis": 64_001}, "cpu_millis", "max_value"),
        ({"cluster": "prod", "cpu_millis": 0.5}, "cpu_millis", "type"),
        ({"cluster": "prod", "cpu_limit_millis": 249}, "cpu_limit_millis", "min_value"),
        ({"cluster": "prod", "memory_limit_bytes": GIB}, "memory_limit_bytes", "min_value"),
    ],
)
def test_invalid_locations(data: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(Refused) as caught:
        create_spec(data, CLUSTERS)
    (problem,) = caught.value.errors
    assert (problem.field, problem.code) == (field, code)


def test_location_is_immutable() -> None:
    there = create_spec({"cluster": "prod"}, CLUSTERS)
    assert change_spec(there, {"cluster": "prod", "node_count": 2}, CLUSTERS).node_count == 2
    with pytest.raises(Refused) as caught:
        change_spec(there, {"cluster": "", "namespace": "other"}, CLUSTERS)
    assert {(p.field, p.code) for p in caught.value.errors} == {
        ("cluster", "fixed"),
        ("namespace", "fixed"),
    }


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(Refused) as caught:
        change_spec(SMALL, {"policy": "x", "node_count": 99, "size": 1}, ROOM)
    assert {problem.field for problem in caught.value.errors} == {"policy", "node_count", "size"}


def test_tier_may_shrink_on_a_machine_with_less_memory() -> None:
    large = TierSpec(memory_bytes=GIB, node_count=12, disk_bytes=20 * GIB)
    poor = SpareCapacity(memory_bytes=GIB, disk_bytes=GIB)
    assert change_spec(large, {"node_count": 11}, poor).node_count == 11
    with pytest.raises(Refused):
        change_spec(large, {"node_count": 13}, poor)


@pytest.mark.parametrize("name", ["a", "chat-2", "a" * 40])
def test_names(name: str) -> None:
    assert spec.check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "new", "Chat", "2chat", "a-", "-a", "a" * 41, "a b", "a/b", None, 7, "a\n"]
)
def test_invalid_names(name: Any) -> None:
    with pytest.raises(Refused) as caught:
        spec.check_name(name)
    assert caught.value.errors[0].code == "invalid_name"
