"""Consequences of a change, computed from the workload."""

from __future__ import annotations

from typing import Any

import pytest

from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.models import Endpoint, EndpointStatus
from endpoints.pages.editor import consequences
from endpoints.spec.endpoint_spec import merge, parse

pytestmark = pytest.mark.django_db


def of(endpoint: Endpoint, change: dict[str, Any], *refused: str) -> consequences.Consequences:
    return consequences.find_consequences(parse(merge(endpoint.spec, change)), endpoint, refused)


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({}, False),
        ({"replicas": 4}, False),
        ({"routing": {"strategy": "kvaware"}}, False),
        ({"cache": {"l1": {"size_gib": 1.0}}}, True),
        ({"resources": {"cpus": 2.0}}, True),
        # Labelled "restarts workers", but they do not restart any: L2 is off.
        ({"cache": {"l2": {"ttl_s": 60}}}, False),
    ],
)
def test_restarts_equal_those_of_the_workload(
    demo_endpoint: Endpoint, change: dict[str, Any], restarts: bool
) -> None:
    found = of(demo_endpoint, change)
    assert found.restarts is restarts
    assert len(found.changes) == bool(change)
    assert found.workers == 2


def test_workers_that_restart_are_those_an_autoscaler_set(demo_endpoint: Endpoint) -> None:
    EndpointStatus.objects.update(wanted_replicas=5)
    demo_endpoint.status.refresh_from_db()
    assert of(demo_endpoint, {"resources": {"cpus": 2.0}}).workers == 5


def test_incomplete_input_is_no_change(demo_endpoint: Endpoint) -> None:
    found = of(demo_endpoint, {"replicas": 1}, "replicas")
    assert found.changes == ()
    assert found.restarts is False


def test_command_diff_shows_added_and_removed_arguments(demo_endpoint: Endpoint) -> None:
    found = of(demo_endpoint, {"worker_args": ["--max-model-len=4096"]})
    signs = {line.sign: line.text for line in found.command if line.sign}
    assert signs == {"-": "--max-model-len=2048", "+": "--max-model-len=4096"}
    new = consequences.find_consequences(demo_endpoint.parsed, None, ())
    assert not any(line.sign for line in new.command)
    assert len(new.command) > 5


def test_serving_revision_is_stated(demo_endpoint: Endpoint) -> None:
    EndpointStatus.objects.update(served_generation=1)
    actions.patch(SYSTEM, "demo", {"replicas": 3})
    endpoint = Endpoint.objects.select_related("status").get()
    found = of(endpoint, {"routing": {"strategy": "session"}})
    assert [one.path for one in found.changes] == ["routing.strategy"]
    assert found.running == 1
    assert {one.path for one in found.to_running} == {"replicas", "routing.strategy"}
    EndpointStatus.objects.update(served_generation=2)
    assert of(Endpoint.objects.get(), {}).running == 0


def test_unknown_location_is_no_crash(demo_endpoint: Endpoint) -> None:
    found = of(demo_endpoint, {"placement": {"cluster": "nowhere"}, "source": {"type": "s3"}})
    assert found.changes
